// Layers whose sums have one order: the bits of one rank on any number of ranks, forward and
// backward.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "tests/support/run_ranks.h"
#include "weft/nn/attention/rotary_attention.h"
#include "weft/nn/layers/swiglu.h"
#include "weft/nn/ordered/ordered_cross_entropy.h"
#include "weft/nn/ordered/ordered_heads.h"
#include "weft/nn/ordered/ordered_linears.h"
#include "weft/shard/sum_order.h"

namespace weft::nn::ordered {
namespace {

using shard::Layout;
using shard::SumOrder;

constexpr int64_t kOrderedTokens = 19, kOrderedWidth = 45, kOrderedFfn = 70, kOrderedVocab = 83;
constexpr int64_t kHeads = 6, kKvHeads = 2, kHeadDim = 10;
constexpr int kMostRanks = 6;

// Numbers of very different sizes: their sums have other bits in every order.
at::Tensor wide(at::IntArrayRef sizes, uint64_t seed) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(seed);
  const at::Tensor exponents = at::randint(-6, 3, sizes, generator, at::kFloat);
  return at::randn(sizes, generator) * at::exp2(exponents);
}

Layout even_layout(int64_t size, int64_t n) {
  return shard::make_layout({0, {}, 1}, size, n, "dim");
}

std::vector<Layout> even_layouts(int64_t size) {
  std::vector<Layout> cuts;
  for (int64_t n = 1; n <= kMostRanks; ++n) cuts.push_back(even_layout(size, n));
  return cuts;
}

std::vector<Layout> query_layouts() {
  std::vector<Layout> cuts;
  for (int64_t n = 1; n <= kMostRanks; ++n) {
    cuts.push_back(shard::head_layouts(kHeads, kKvHeads, kHeadDim, n).query);
  }
  return cuts;
}

// What one rank of a group computes, or the whole where the group is one.
struct Side {
  dist::Group group;

  // This rank's part of a whole along dim, which needs a gradient.
  at::Tensor part(const at::Tensor& whole, const Layout& layout, int64_t dim) const {
    std::vector<at::Tensor> parts;
    for (const shard::Range& range : layout.of(group.rank())) {
      parts.push_back(whole.narrow(dim, range.start, range.length));
    }
    return at::cat(parts, dim).clone().set_requires_grad(true);
  }
  std::shared_ptr<dist::OrderedSum> sum(const std::vector<Layout>& cuts) const {
    return std::make_shared<dist::OrderedSum>(
        group, SumOrder(cuts).plan(cuts[static_cast<size_t>(group.size() - 1)], group.rank()));
  }
  // Of pieces that belong to as many linears.
  std::shared_ptr<const InputSum> input(size_t linears, const std::vector<Layout>& cuts) const {
    auto input = std::make_shared<InputSum>();
    input->sum = sum(cuts);
    for (const shard::Range& piece : input->sum->plan().pieces) {
      auto& parts = input->pieces.emplace_back();
      for (size_t i = 0; i < linears; ++i) parts.push_back({i, piece});
    }
    return input;
  }
};

// A named output or gradient, and along which layout and dim it is cut; no layouts: it is whole.
struct Found {
  std::string name;
  at::Tensor value;
  std::vector<Layout> cuts = {};
  int64_t dim = 0;
};

using Computed = std::vector<Found>;

Computed feed_forward(const Side& side) {
  const std::vector<Layout> cuts = even_layouts(kOrderedFfn);
  const Layout& own = cuts[static_cast<size_t>(side.group.size() - 1)];
  at::Tensor x = wide({1, kOrderedTokens, kOrderedWidth}, 1).set_requires_grad(true);
  const at::Tensor gate = side.part(wide({kOrderedFfn, kOrderedWidth}, 2), own, 0);
  const at::Tensor up = side.part(wide({kOrderedFfn, kOrderedWidth}, 3), own, 0);
  const at::Tensor up_bias = side.part(wide({kOrderedFfn}, 4), own, 0);
  const at::Tensor down = side.part(wide({kOrderedWidth, kOrderedFfn}, 5), own, 1);
  at::Tensor bias = wide({kOrderedWidth}, 6).set_requires_grad(true);
  const auto made = linears(x, {gate, up}, {{}, up_bias}, side.input(2, cuts));
  const at::Tensor y = with_bias(reduced(swiglu(made[0], made[1]), down, side.sum(cuts)), bias);
  y.backward(wide(y.sizes(), 7));
  return {{"y", y.detach()},
          {"x", x.grad()},
          {"gate", gate.grad(), cuts, 0},
          {"up", up.grad(), cuts, 0},
          {"up bias", up_bias.grad(), cuts, 0},
          {"down", down.grad(), cuts, 1},
          {"bias", bias.grad()}};
}

HeadCut heads_of(const Side& side) {
  HeadCut cut;
  cut.group = side.group;
  cut.num_heads = kHeads;
  cut.num_kv_heads = kKvHeads;
  const Layout own = query_layouts()[static_cast<size_t>(side.group.size() - 1)];
  for (const int64_t length : own.lengths()) cut.heads_of_rank.push_back(length / kHeadDim);
  cut.own = shard::shard_heads(kHeads, kKvHeads, side.group.size(), side.group.rank());
  return cut;
}

// As models::input_of_heads.
std::shared_ptr<const InputSum> input_of(const Side& side, const HeadCut& cut) {
  auto input = std::make_shared<InputSum>();
  input->sum = side.sum(query_layouts());
  for (const shard::Range& piece : input->sum->plan().pieces) {
    auto& parts = input->pieces.emplace_back();
    for (int64_t head = piece.start / kHeadDim; head < piece.end() / kHeadDim; ++head) {
      const int64_t whole = cut.own.heads.start + head;
      if (whole % cut.heads_per_kv() == 0) {
        const int64_t kv = whole / cut.heads_per_kv() - cut.own.kv_heads.start;
        parts.push_back({1, {kv * kHeadDim, kHeadDim}});
        parts.push_back({2, {kv * kHeadDim, kHeadDim}});
      }
      parts.push_back({0, {head * kHeadDim, kHeadDim}});
    }
  }
  return input;
}

Computed attention(const Side& side) {
  const HeadCut cut = heads_of(side);
  const std::vector<Layout> cuts = query_layouts();
  const Layout& own = cuts[static_cast<size_t>(side.group.size() - 1)];
  std::vector<Layout> kv_cuts;
  for (int64_t n = 1; n <= kMostRanks; ++n) {
    kv_cuts.push_back(shard::head_layouts(kHeads, kKvHeads, kHeadDim, n).kv);
  }
  const Layout& own_kv = kv_cuts[static_cast<size_t>(side.group.size() - 1)];
  at::Tensor x = wide({1, kOrderedTokens, kOrderedWidth}, 11).set_requires_grad(true);
  const at::Tensor q = side.part(wide({kHeads * kHeadDim, kOrderedWidth}, 12), own, 0);
  const at::Tensor k = side.part(wide({kKvHeads * kHeadDim, kOrderedWidth}, 13), own_kv, 0);
  const at::Tensor v = side.part(wide({kKvHeads * kHeadDim, kOrderedWidth}, 14), own_kv, 0);
  const at::Tensor o = side.part(wide({kOrderedWidth, kHeads * kHeadDim}, 15), own, 1);
  at::Tensor q_norm = wide({kHeadDim}, 16).set_requires_grad(true);
  at::Tensor k_norm = wide({kHeadDim}, 17).set_requires_grad(true);
  const auto made = linears(x, {q, k, v}, {{}, {}, {}}, input_of(side, cut));
  const auto heads = [](const at::Tensor& t) { return t.unflatten(2, {-1, kHeadDim}); };
  AttentionSpec spec;
  spec.kv_of_head.resize(static_cast<size_t>(cut.own.heads.length));
  std::iota(spec.kv_of_head.begin(), spec.kv_of_head.end(), 0);
  const at::Tensor mixed =
      rotary_attention(normed_heads(heads(made[0]), q_norm, 1e-5, cut, false),
                       copied_to_heads(normed_heads(heads(made[1]), k_norm, 1e-5, cut, true), cut),
                       copied_to_heads(heads(made[2]), cut),
                       Rope(kHeadDim, 1e4, kOrderedTokens).angles(0, kOrderedTokens), spec);
  const at::Tensor y = reduced(mixed, o, side.sum(cuts));
  y.backward(wide(y.sizes(), 18));
  return {{"y", y.detach()},           {"x", x.grad()},
          {"q", q.grad(), cuts, 0},    {"k", k.grad(), kv_cuts, 0},
          {"v", v.grad(), kv_cuts, 0}, {"o", o.grad(), cuts, 1},
          {"q norm", q_norm.grad()},   {"k norm", k_norm.grad()}};
}

Computed loss(const Side& side) {
  const std::vector<Layout> cuts = even_layouts(kOrderedVocab);
  const Layout& own = cuts[static_cast<size_t>(side.group.size() - 1)];
  at::Tensor x = wide({kOrderedTokens, kOrderedWidth}, 21).set_requires_grad(true);
  const at::Tensor head = side.part(wide({kOrderedVocab, kOrderedWidth}, 22), own, 0);
  at::Tensor targets = (at::arange(kOrderedTokens, at::kLong) * 31).remainder(kOrderedVocab);
  targets[3] = -100;
  const auto input = side.input(1, cuts);
  const at::Tensor logits = linears(x, {head}, {{}}, input).front();
  const at::Tensor sum = cross_entropy_sum(logits, targets, own.of(side.group.rank()).front(),
                                           kOrderedVocab, side.group, input->sum);
  sum.backward();
  return {{"loss", sum.detach().view({1})}, {"x", x.grad()}, {"head", head.grad(), cuts, 0}};
}

// Of several ways to see one and the same, with what a group of ranks may not change.
void expect_bits_of_one_rank(Computed (*compute)(const Side&)) {
  for (const int n : {2, 3, 4, kMostRanks}) {
    test::run_ranks(n, [&](const dist::World& world) {
      const Computed expected = compute(Side{});
      at::set_num_threads(2);
      const Computed got = compute(Side{world.group()});
      ASSERT_EQ(got.size(), expected.size());
      for (size_t i = 0; i < got.size(); ++i) {
        at::Tensor own = expected[i].value;
        if (!got[i].cuts.empty()) {
          own = Side{world.group()}.part(own, got[i].cuts[static_cast<size_t>(n - 1)], got[i].dim);
        }
        EXPECT_TRUE(at::equal(got[i].value, own.detach())) << got[i].name << " on " << n;
      }
    });
  }
}

TEST(OrderedLayers, FeedForwardHasTheBitsOfOneRank) { expect_bits_of_one_rank(feed_forward); }

TEST(OrderedLayers, AttentionHasTheBitsOfOneRankAlsoWhereKvHeadsAreShared) {
  expect_bits_of_one_rank(attention);
}

TEST(OrderedLayers, LossHasTheBitsOfOneRank) { expect_bits_of_one_rank(loss); }

void expect_near(const at::Tensor& got, const at::Tensor& expected, const std::string& what) {
  const double most = expected.abs().max().item<double>();
  EXPECT_LT((got.to(at::kDouble) - expected).abs().max().item<double>(), 1e-5 * most) << what;
}

const at::Tensor& found(const Computed& computed, const std::string& name) {
  for (const Found& each : computed) {
    if (each.name == name) return each.value;
  }
  throw std::runtime_error(name);
}

TEST(OrderedLayers, FeedForwardIsThatOfTorch) {
  const Computed got = feed_forward(Side{});
  const auto leaf = [](at::IntArrayRef sizes, uint64_t seed) {
    return wide(sizes, seed).to(at::kDouble).set_requires_grad(true);
  };
  at::Tensor x = leaf({1, kOrderedTokens, kOrderedWidth}, 1),
             gate = leaf({kOrderedFfn, kOrderedWidth}, 2);
  at::Tensor up = leaf({kOrderedFfn, kOrderedWidth}, 3), up_bias = leaf({kOrderedFfn}, 4);
  at::Tensor down = leaf({kOrderedWidth, kOrderedFfn}, 5), bias = leaf({kOrderedWidth}, 6);
  const at::Tensor y =
      at::linear(at::silu(at::linear(x, gate)) * at::linear(x, up, up_bias), down, bias);
  y.backward(wide(y.sizes(), 7).to(at::kDouble));
  expect_near(found(got, "y"), y.detach(), "y");
  for (const auto& [name, leaf_tensor] :
       std::vector<std::pair<std::string, at::Tensor>>{{"x", x},
                                                       {"gate", gate},
                                                       {"up", up},
                                                       {"up bias", up_bias},
                                                       {"down", down},
                                                       {"bias", bias}}) {
    expect_near(found(got, name), leaf_tensor.grad(), name);
  }
}

TEST(OrderedLayers, LossIsThatOfTorch) {
  const Computed got = loss(Side{});
  at::Tensor x = wide({kOrderedTokens, kOrderedWidth}, 21).to(at::kDouble).set_requires_grad(true);
  at::Tensor head =
      wide({kOrderedVocab, kOrderedWidth}, 22).to(at::kDouble).set_requires_grad(true);
  at::Tensor targets = (at::arange(kOrderedTokens, at::kLong) * 31).remainder(kOrderedVocab);
  targets[3] = -100;
  const at::Tensor sum =
      at::cross_entropy_loss(at::linear(x, head), targets, {}, at::Reduction::Sum, -100);
  sum.backward();
  expect_near(found(got, "loss"), sum.detach().view({1}), "loss");
  expect_near(found(got, "x"), x.grad(), "x");
  expect_near(found(got, "head"), head.grad(), "head");
}

// The test can fail: pieces of one cut alone have other sums than those of all cuts.
TEST(OrderedLayers, OtherPiecesGiveOtherBits) {
  const at::Tensor x = wide({kOrderedTokens, kOrderedFfn}, 31),
                   w = wide({kOrderedWidth, kOrderedFfn}, 32);
  const std::vector<Layout> all = even_layouts(kOrderedFfn), one = {even_layout(kOrderedFfn, 1)};
  const Side side;
  EXPECT_FALSE(at::equal(reduced(x, w, side.sum(all)), reduced(x, w, side.sum(one))));
}

// Rows, columns and threads change no bit of a sum, whatever blocks they make.
TEST(OrderedLayers, ARowIsTheSameAloneAndAmongOthers) {
  const at::Tensor x = wide({500, 700}, 41), w = wide({300, 700}, 42);
  const Side side;
  const auto sum = side.sum(even_layouts(700));
  at::set_num_threads(1);
  const at::Tensor y = reduced(x, w, sum);
  for (const int threads : {1, 2, 3}) {
    at::set_num_threads(threads);
    EXPECT_TRUE(at::equal(reduced(x, w, sum), y)) << threads;
    EXPECT_TRUE(at::equal(reduced(x.narrow(0, 77, 1), w, sum), y.narrow(0, 77, 1)));
    EXPECT_TRUE(at::equal(reduced(x, w.narrow(0, 33, 17), sum), y.narrow(1, 33, 17)));
  }
  at::set_num_threads(1);
}

}  // namespace
}  // namespace weft::nn::ordered
