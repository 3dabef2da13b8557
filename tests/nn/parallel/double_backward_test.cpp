// Gradients of gradients through layers that reduce over the ranks.
#include <torch/csrc/autograd/autograd.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/nn/linear_cases.h"
#include "weft/nn/linear/fused_linear.h"
#include "weft/ops/collectives.h"
#include "weft/shard/heads.h"

namespace weft::nn {
namespace {

using dist::Group;
using test::expect_close;
using test::leaf;
using test::on_ranks;
using test::seeded;

constexpr double kTolerance = 1e-11;

/// A loss of the output and of its gradient by x, as a gradient penalty has it. Its gradients reach
/// the parameters.
void penalized_step(const std::function<at::Tensor(const at::Tensor&)>& model, at::Tensor& x) {
  const at::Tensor y = model(x);
  const at::Tensor d_x = torch::autograd::grad({y.pow(3).sum()}, {x}, {}, /*retain_graph=*/true,
                                               /*create_graph=*/true)[0];
  (d_x.square().sum() + y.square().sum()).backward();
}

void expect_equal_steps(const MakeLinear& first, const MakeLinear& second, const Group& group) {
  Linear up(first()), down(second()), up_cut(first()), down_cut(second());
  up_cut->shard(ShardKind::kAllToSharded, group);
  down_cut->shard(ShardKind::kShardedToAll, group);
  at::Tensor x = leaf(seeded({3, up->in_features()}, 8)), x_cut = leaf(x);
  penalized_step([&](const at::Tensor& in) { return down(at::tanh(up(in))); }, x);
  penalized_step([&](const at::Tensor& in) { return down_cut(at::tanh(up_cut(in))); }, x_cut);
  expect_close(x_cut.grad(), x.grad(), "gradient of the input", kTolerance);
  for (const auto& [whole, cut] : {std::pair(&up, &up_cut), std::pair(&down, &down_cut)}) {
    const auto& part = dynamic_cast<ParallelLinearImpl&>(*(*cut)->layer());
    expect_gradients_of(*part.inner(), *(*whole)->inner(), *part.cut(), kTolerance);
  }
  const auto& row = dynamic_cast<ShardedToAllLinearImpl&>(*down_cut->layer());
  if (down->inner()->bias_or_undefined().grad().defined()) {
    expect_close(row.bias.grad(), down->inner()->bias_or_undefined().grad(), "bias", kTolerance);
  }
}

TEST(DoubleBackward, OfCutLayersEqualsTheWholes) {
  on_ranks([](const Group& group) {
    expect_equal_steps(dense_case(9, 6), dense_case(5, 9), group);
    expect_equal_steps(lora_case(dense_case(9, 6), at::kDouble),
                       lora_case(dense_case(5, 9), at::kDouble), group);
  });
}

std::shared_ptr<LinearLike> sharded_linear(const DenseLinearImpl& whole, ShardKind kind,
                                           const Group& group) {
  const bool by_rows = kind == ShardKind::kAllToSharded;
  const int64_t size = by_rows ? whole.out_features() : whole.in_features();
  return whole.shard(
      {kind, shard::make_layout({by_rows ? 0 : 1, {}, 1}, size, group.size(), "part"), group});
}

// Three linears of one input, and the one after them, fused and cut; by rows of x where `rows`.
void expect_fused_steps(const Group& group, const RowCounts& rows) {
  const auto gate = seeded_linear(8, 6, 1, true), up = seeded_linear(8, 6, 3, false),
             down = seeded_linear(6, 8, 5, false);
  at::Tensor x = leaf(seeded({7, 6}, 8));
  penalized_step(
      [&](const at::Tensor& in) {
        return down->forward(at::silu(gate->forward(in)) * up->forward(in));
      },
      x);
  const std::vector<std::shared_ptr<LinearLike>> shared = {
      sharded_linear(*gate, ShardKind::kAllToSharded, group),
      sharded_linear(*up, ShardKind::kAllToSharded, group)};
  const auto last = sharded_linear(*down, ShardKind::kShardedToAll, group);
  int64_t start = 0;
  for (int64_t rank = 0; rank < group.rank() && !rows.empty(); ++rank) start += rows[rank];
  const int64_t count = rows.empty() ? 7 : rows[static_cast<size_t>(group.rank())];
  at::Tensor own = leaf(x.detach().narrow(0, start, count));
  penalized_step(
      [&](const at::Tensor& in) {
        const auto y = linears_of_shared(shared, in, group, rows);
        return reduced_linear(*last, at::silu(y[0]) * y[1], group, rows);
      },
      own);
  expect_close(own.grad(), x.grad().narrow(0, start, count), "gradient of the input", kTolerance);
  const auto gradient = [](const LinearLike& linear) {
    return linear.named_parameters()["weight"].grad();
  };
  const shard::Range own_rows = shard::part(8, group.size(), group.rank());
  const auto own_part_of = [&](const at::Tensor& whole, int64_t dim) {
    return whole.narrow(dim, own_rows.start, own_rows.length);
  };
  expect_close(gradient(*shared[0]), own_part_of(gate->weight.grad(), 0), "gate", kTolerance);
  expect_close(gradient(*shared[1]), own_part_of(up->weight.grad(), 0), "up", kTolerance);
  expect_close(gradient(*last), own_part_of(down->weight.grad(), 1), "down", kTolerance);
  expect_close(shared[0]->bias_or_undefined().grad(), own_part_of(gate->bias.grad(), 0), "bias",
               kTolerance);
}

TEST(DoubleBackward, OfFusedLayersEqualsTheWholes) {
  on_ranks([](const Group& group) {
    expect_fused_steps(group, {});
    RowCounts rows;
    for (int64_t rank = 0; rank < group.size(); ++rank) {
      rows.push_back(shard::part(7, group.size(), rank).length);
    }
    expect_fused_steps(group, rows);
  });
}

// Key heads that several ranks hold: the gradients of their copies belong together.
TEST(DoubleBackward, SumsOverTheRanksThatShareRows) {
  constexpr int64_t kN = 4, kK = 2, kH = 3, kD = 5;
  on_ranks([](const Group& group) {
    Linear wq(dense_case(kN * kH, kD)()), wk(dense_case(kK * kH, kD)()),
        wo(dense_case(kD, kN * kH)());
    Linear wq_cut(dense_case(kN * kH, kD)()), wk_cut(dense_case(kK * kH, kD)()),
        wo_cut(dense_case(kD, kN * kH)());
    const auto heads = shard::head_layouts(kN, kK, kH, group.size());
    wq_cut->shard(ShardKind::kAllToSharded, group, heads.query);
    wk_cut->shard(ShardKind::kAllToSharded, group, heads.kv);
    wo_cut->shard(ShardKind::kShardedToAll, group, heads.query);
    const auto model = [](Linear& q, Linear& k, Linear& o, std::vector<int64_t> kv_of_head) {
      return [=](const at::Tensor& x) mutable {
        const at::Tensor keys =
            k(x).unflatten(-1, {-1, kH}).index_select(-2, at::tensor(kv_of_head, at::kLong));
        return o((q(x).unflatten(-1, {-1, kH}) * keys).flatten(-2));
      };
    };
    at::Tensor x = leaf(seeded({3, kD}, 8)), x_cut = leaf(x);
    penalized_step(model(wq, wk, wo, shard::shard_heads(kN, kK, 1, 0).kv_of_head), x);
    const auto own = shard::shard_heads(kN, kK, group.size(), group.rank()).kv_of_head;
    penalized_step(model(wq_cut, wk_cut, wo_cut, own), x_cut);
    expect_close(x_cut.grad(), x.grad(), "gradient of the input", kTolerance);
    const auto& part = dynamic_cast<ParallelLinearImpl&>(*wk_cut->layer());
    expect_close(part.weight().grad(), own_part(wk->weight().grad(), *part.cut()), "gradient of wk",
                 kTolerance);
  });
}

}  // namespace
}  // namespace weft::nn
