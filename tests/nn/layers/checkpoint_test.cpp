#include "weft/nn/layers/checkpoint.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "tests/core/error_text.h"
#include "tests/ops/tensor_checks.h"

namespace weft::nn {
namespace {

using test::leaf;
using test::seeded;

struct Gradients {
  at::Tensor y, x, w;
};

// Two layers with dropout in between; `keep` decides how they are called.
Gradients run(const at::Tensor& x_value, bool is_checkpointed) {
  at::manual_seed(5);
  const at::Tensor x = leaf(x_value), w = leaf(seeded({6, 6}, 2, at::kFloat));
  const auto layer = [&](const at::Tensor& h) {
    return at::dropout(at::tanh(at::matmul(h, w)), 0.4, true);
  };
  const auto call = [&](const at::Tensor& h) {
    return is_checkpointed ? checkpoint(layer, h) : layer(h);
  };
  const at::Tensor y = call(call(x));
  // Numbers drawn between forward and backward must not matter.
  at::rand({7});
  y.square().sum().backward();
  return {y.detach(), x.grad(), w.grad()};
}

TEST(Checkpoint, EqualsAPlainCallToTheBit) {
  const at::Tensor x = seeded({5, 6}, 1, at::kFloat);
  const Gradients expected = run(x, false), got = run(x, true);
  EXPECT_TRUE(at::equal(got.y, expected.y));
  EXPECT_TRUE(at::equal(got.x, expected.x));
  EXPECT_TRUE(at::equal(got.w, expected.w));
}

TEST(Checkpoint, RunsTheFunctionOnceMoreInBackwardAndLeavesTheGeneratorAlone) {
  int calls = 0;
  const at::Tensor x = leaf(seeded({3}, 1, at::kFloat));
  at::manual_seed(1);
  const at::Tensor y = checkpoint(
      [&](const at::Tensor& h) {
        ++calls;
        return h * at::rand({3});
      },
      x);
  EXPECT_EQ(calls, 1);
  y.sum().backward();
  EXPECT_EQ(calls, 2);
  const at::Tensor next = at::rand({3});
  at::manual_seed(1);
  at::rand({3});
  EXPECT_TRUE(at::equal(next, at::rand({3})));
}

TEST(Checkpoint, TrainsCapturedParametersWhereNoInputNeedsAGradient) {
  const at::Tensor w = leaf(seeded({4}, 1, at::kFloat)), x = seeded({4}, 2, at::kFloat);
  const at::Tensor y = checkpoint([&](const at::Tensor& h) { return h * w; }, x);
  EXPECT_TRUE(y.requires_grad());
  y.sum().backward();
  EXPECT_TRUE(at::equal(w.grad(), x));
}

TEST(Checkpoint, TakesSeveralInputsAndOutputsSomeWithoutGradient) {
  const at::Tensor a = leaf(seeded({4}, 1, at::kFloat)), b = seeded({4}, 2, at::kFloat);
  const at::Tensor index = at::arange(4);
  const auto function = [](const std::vector<at::Tensor>& in) {
    return std::vector<at::Tensor>{in[0] * in[1], in[0].square(), in[2] + 1};
  };
  const auto outputs = checkpoint(function, {a, b, index});
  ASSERT_EQ(outputs.size(), 3U);
  EXPECT_TRUE(at::equal(outputs[2], index + 1));
  outputs[0].sum().backward();
  EXPECT_TRUE(at::equal(a.grad(), b));
  EXPECT_FALSE(b.grad().defined());
}

TEST(Checkpoint, IsAPlainCallWhereNoGradientsAreRecorded) {
  const at::NoGradGuard no_grad;
  const at::Tensor x = leaf(seeded({4}, 1, at::kFloat));
  EXPECT_FALSE(checkpoint([](const at::Tensor& h) { return h * 2; }, x).requires_grad());
}

TEST(Checkpoint, RefusesGradientsOfGradients) {
  const at::Tensor x = leaf(seeded({4}, 1, at::kFloat));
  const at::Tensor y = checkpoint([](const at::Tensor& h) { return h * h; }, x);
  EXPECT_EQ(testing::error_text(
                [&] { torch::autograd::grad({y.sum()}, {x}, {}, true, /*create_graph=*/true); }),
            "ConfigError: nn.checkpoint: a gradient of the gradient is not defined; call backward "
            "without create_graph");
}

}  // namespace
}  // namespace weft::nn
