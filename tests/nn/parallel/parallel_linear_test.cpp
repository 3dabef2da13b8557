#include "weft/nn/parallel/parallel_linear.h"

#include "tests/core/error_text.h"
#include "tests/ops/tensor_checks.h"
#include "weft/nn/linear/dense_linear.h"
#include "weft/nn/linear/quantized_linear.h"
#include "weft/ops/collectives.h"

namespace weft::nn {
namespace {

using dist::Group;
using test::expect_close;
using test::leaf;
using test::on_ranks;
using test::piece;
using test::seeded;
using testing::error_text;

std::shared_ptr<DenseLinearImpl> dense(at::Tensor weight, at::Tensor bias = {}) {
  return std::make_shared<DenseLinearImpl>(std::move(weight), std::move(bias), true);
}

TEST(AllToShardedLinear, EqualsTheWholeForwardAndEveryGradient) {
  on_ranks([](const Group& group) {
    const at::Tensor w = leaf(seeded({7, 5}, 1)), b = leaf(seeded({7}, 2));
    const at::Tensor x = leaf(seeded({2, 3, 5}, 3)), grad = seeded({2, 3, 7}, 4);
    const at::Tensor y = at::linear(x, w, b);
    y.backward(grad);
    const auto inner = dense(piece(w, 0, group), piece(b, 0, group));
    AllToShardedLinear linear(inner, group);
    const at::Tensor x_rank = leaf(x);
    const at::Tensor y_rank = linear->forward(x_rank);
    expect_close(y_rank, piece(y, -1, group), "forward");
    y_rank.backward(piece(grad, -1, group));
    expect_close(x_rank.grad(), x.grad(), "gradient of the input");
    expect_close(inner->weight.grad(), piece(w.grad(), 0, group), "gradient of the weight");
    expect_close(inner->bias.grad(), piece(b.grad(), 0, group), "gradient of the bias");
  });
}

TEST(ShardedToAllLinear, EqualsTheWholeForwardAndEveryGradient) {
  on_ranks([](const Group& group) {
    const at::Tensor w = leaf(seeded({5, 11}, 1)), b = leaf(seeded({5}, 2));
    const at::Tensor x = leaf(seeded({2, 3, 11}, 3)), grad = seeded({2, 3, 5}, 4);
    const at::Tensor y = at::linear(x, w, b);
    y.backward(grad);
    const auto inner = dense(piece(w, 1, group));
    ShardedToAllLinear linear(inner, group, b.detach().clone(), true);
    const at::Tensor x_rank = leaf(piece(x, -1, group));
    const at::Tensor y_rank = linear->forward(x_rank);
    expect_close(y_rank, y, "forward, the bias added once");
    y_rank.backward(grad);
    expect_close(x_rank.grad(), piece(x.grad(), -1, group), "gradient of the input");
    expect_close(inner->weight.grad(), piece(w.grad(), 1, group), "gradient of the weight");
    expect_close(linear->bias.grad(), b.grad(), "gradient of the bias");
  });
}

// 7 quant groups of 16 over the ranks: 112 features that no cut divides evenly.
quant::AffineTensor quantized_piece(const quant::AffineTensor& whole, int64_t dim,
                                    const Group& group) {
  const shard::Range all_rows = {0, whole.out_features()};
  const shard::Range all_columns = {0, whole.in_features()};
  if (dim == 0) {
    const auto rows = shard::part(whole.out_features(), group.size(), group.rank());
    return quant::slice_affine(whole, rows, all_columns);
  }
  const auto groups = shard::part(7, group.size(), group.rank());
  return quant::slice_affine(whole, all_rows, {groups.start * 16, groups.length * 16});
}

TEST(AllToShardedLinear, EqualsTheWholeAroundAQuantizedLinear) {
  on_ranks([](const Group& group) {
    const auto w = quant::quantize_affine(seeded({9, 112}, 1, at::kFloat), 4, 16, at::kFloat);
    const at::Tensor b = seeded({9}, 2, at::kFloat), grad = seeded({3, 9}, 4, at::kFloat);
    const at::Tensor x = leaf(seeded({3, 112}, 3, at::kFloat)), x_rank = leaf(x);
    const at::Tensor y = at::linear(x, quant::dequantize(w, at::kFloat), b);
    y.backward(grad);
    AllToShardedLinear linear(
        std::make_shared<QuantizedLinearImpl>(quantized_piece(w, 0, group), piece(b, 0, group)),
        group);
    const at::Tensor y_rank = linear->forward(x_rank);
    expect_close(y_rank, piece(y, -1, group), "forward", 1e-5);
    y_rank.backward(piece(grad, -1, group));
    expect_close(x_rank.grad(), x.grad(), "gradient of the input", 1e-5);
  });
}

TEST(ShardedToAllLinear, EqualsTheWholeAroundAQuantizedLinear) {
  on_ranks([](const Group& group) {
    const auto w = quant::quantize_affine(seeded({5, 112}, 1, at::kFloat), 4, 16, at::kFloat);
    const at::Tensor b = leaf(seeded({5}, 2, at::kFloat)), grad = seeded({3, 5}, 4, at::kFloat);
    const at::Tensor x = leaf(seeded({3, 112}, 3, at::kFloat));
    const at::Tensor y = at::linear(x, quant::dequantize(w, at::kFloat), b);
    y.backward(grad);
    const auto groups = shard::part(7, group.size(), group.rank());
    const auto cut = [&](const at::Tensor& t) {
      return t.detach().narrow(-1, groups.start * 16, groups.length * 16);
    };
    ShardedToAllLinear linear(std::make_shared<QuantizedLinearImpl>(quantized_piece(w, 1, group)),
                              group, b.detach().clone(), true);
    const at::Tensor x_rank = leaf(cut(x));
    const at::Tensor y_rank = linear->forward(x_rank);
    expect_close(y_rank, y, "forward", 1e-5);
    y_rank.backward(grad);
    expect_close(x_rank.grad(), cut(x.grad()), "gradient of the input", 1e-5);
    expect_close(linear->bias.grad(), b.grad(), "gradient of the bias", 1e-5);
  });
}

struct MlpWeights {
  at::Tensor gate, up, down, bias;
};

MlpWeights whole_mlp() {
  return {leaf(seeded({11, 6}, 1)), leaf(seeded({11, 6}, 2)), leaf(seeded({6, 11}, 3)),
          leaf(seeded({6}, 4))};
}

TEST(ParallelLinears, ChainWithoutGatherAndShareOneBackwardAllReduce) {
  on_ranks([](const Group& group) {
    const MlpWeights whole = whole_mlp();
    const at::Tensor x = leaf(seeded({2, 3, 6}, 5)), grad = seeded({2, 3, 6}, 6);
    const at::Tensor hidden = at::silu(at::linear(x, whole.gate)) * at::linear(x, whole.up);
    const at::Tensor y = at::linear(hidden, whole.down, whole.bias);
    y.backward(grad);

    const auto gate = dense(piece(whole.gate, 0, group)), up = dense(piece(whole.up, 0, group));
    const auto down = dense(piece(whole.down, 1, group));
    AllToShardedLinear gate_layer(gate, group), up_layer(up, group);
    ShardedToAllLinear down_layer(down, group, whole.bias.detach().clone(), true);
    const at::Tensor x_rank = leaf(x);
    const at::Tensor shared = ops::mp_copy(x_rank, group);
    const at::Tensor y_rank =
        down_layer->forward(at::silu(gate_layer->forward(shared)) * up_layer->forward(shared));
    expect_close(y_rank, y, "forward");
    y_rank.backward(grad);
    expect_close(x_rank.grad(), x.grad(), "gradient of the input");
    expect_close(gate->weight.grad(), piece(whole.gate.grad(), 0, group), "gate");
    expect_close(up->weight.grad(), piece(whole.up.grad(), 0, group), "up");
    expect_close(down->weight.grad(), piece(whole.down.grad(), 1, group), "down");
    expect_close(down_layer->bias.grad(), whole.bias.grad(), "bias");
  });
}

TEST(ShardedToAllLinear, RefusesABiasThatWouldBeAddedOncePerRank) {
  EXPECT_EQ(error_text([] {
              ShardedToAllLinear(dense(at::zeros({3, 2}), at::zeros({3})), Group());
            }),
            "ShapeError: nn.ShardedToAllLinear: the inner linear has a bias, which would be added "
            "once per rank; give it to the layer instead");
}

TEST(ShardedToAllLinear, RefusesABiasOfAnotherSize) {
  EXPECT_EQ(error_text([] {
              ShardedToAllLinear(dense(at::zeros({3, 2})), Group(), at::zeros({2}));
            }),
            "ShapeError: nn.ShardedToAllLinear: bias [2], expected [3]");
}

}  // namespace
}  // namespace weft::nn
