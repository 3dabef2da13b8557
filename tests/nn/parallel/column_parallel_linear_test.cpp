#include "weft/nn/parallel/column_parallel_linear.h"

#include <torch/utils.h>

#include <sstream>

#include "tests/core/error_text.h"
#include "tests/nn/layer_checks.h"

namespace weft::nn {
namespace {

using dist::Group;
using test::expect_close;
using test::expect_equal_on_all_ranks;
using test::leaf;
using test::on_ranks;
using test::own_ranges;
using test::seeded;
using testing::error_text;

constexpr int64_t kColumnIn = 7,
                  kColumnOut = 18;  // 18 in 3 segments over 4 ranks: 2, 2, 1, 1 of each

void expect_columns_equal_whole(const Group& group, const ColumnParallelOptions& options) {
  const std::string name = core::join(options.dtype, ", stride ", options.stride, ", gather ",
                                      options.gather_output, ", bias ", options.bias);
  const double tolerance = test::layer_tolerance(options.dtype);
  ColumnParallelLinear layer(kColumnIn, kColumnOut, group, options);
  auto whole = test::whole_linear(*layer);
  const at::Tensor x = leaf(seeded({2, 3, kColumnIn}, 1, options.dtype));
  const at::Tensor x_whole = leaf(x.to(at::kDouble));
  const at::Tensor y_whole = whole->forward(x_whole);
  const at::Tensor grad = seeded({2, 3, kColumnOut}, 2, options.dtype);
  y_whole.backward(grad.to(at::kDouble));

  const at::Tensor y = layer->forward(x);
  ASSERT_EQ(y.scalar_type(), options.dtype);
  const auto own = [&](const at::Tensor& t) {
    return options.gather_output ? t : own_ranges(t, *layer, -1);
  };
  expect_close(y, own(y_whole), name + ": output", tolerance);
  y.backward(own(grad));
  expect_close(x.grad(), x_whole.grad(), name + ": gradient of the input", tolerance);
  expect_equal_on_all_ranks(x.grad(), group, name + ": gradient of the input");
  const auto parameters = layer->named_parameters();
  expect_close(parameters["inner.weight"].grad(), own_ranges(whole->weight.grad(), *layer, 0),
               name + ": gradient of the weight", tolerance);
  ASSERT_EQ(parameters.size(), options.bias ? 2 : 1);
  if (!options.bias) return;
  expect_close(parameters["inner.bias"].grad(), own_ranges(whole->bias.grad(), *layer, 0),
               name + ": gradient of the bias", tolerance);
}

TEST(ColumnParallelLinear, EqualsTorchsLinearOnTheWhole) {
  on_ranks([](const Group& group) {
    for (const auto dtype : test::layer_dtypes()) {
      for (const int64_t stride : {1, 2, 3}) {
        for (const bool gather_output : {true, false}) {
          for (const bool bias : {true, false}) {
            ColumnParallelOptions options;
            options.bias = bias;
            options.gather_output = gather_output;
            options.stride = stride;
            options.dtype = dtype;
            expect_columns_equal_whole(group, options);
          }
        }
      }
    }
  });
}

TEST(ColumnParallelLinear, BeginsAlikeOnAnyNumberOfRanks) {
  on_ranks([](const Group& group) {
    for (const int64_t stride : {1, 3}) {
      ColumnParallelOptions options;
      options.stride = stride;
      options.bias_init = Init::normal();
      torch::manual_seed(11);
      const ColumnParallelLinear alone(kColumnIn, kColumnOut, Group(), options);
      // The other ranks' seeds don't matter.
      torch::manual_seed(11 + static_cast<uint64_t>(group.rank()));
      ColumnParallelLinear layer(kColumnIn, kColumnOut, group, options);
      EXPECT_TRUE(at::equal(layer->master_weight(), alone->master_weight())) << stride;
      EXPECT_TRUE(at::equal(layer->master_bias(), alone->master_bias())) << stride;
      EXPECT_FALSE(layer->master_weight().requires_grad());
      torch::manual_seed(11 + static_cast<uint64_t>(group.rank()));
      layer->reset_parameters();
      EXPECT_TRUE(at::equal(layer->master_weight(), alone->master_weight())) << "the same draw";
      layer->reset_parameters();
      EXPECT_FALSE(at::equal(layer->master_weight(), alone->master_weight())) << "the next draw";
      EXPECT_FALSE(at::equal(layer->master_bias(), alone->master_bias()));
    }
  });
}

TEST(ColumnParallelLinear, BeginsAsTorchsLinearDoesIfAsked) {
  torch::manual_seed(1);
  ColumnParallelOptions options;
  options.init = Init::linear_default();
  options.bias_init = Init::linear_default_bias(100);
  const ColumnParallelLinear layer(100, 2000, Group(), options);
  const torch::nn::Linear torchs(100, 2000);
  const auto compare = [](const at::Tensor& got, const at::Tensor& want, double margin) {
    EXPECT_NEAR(got.mean().item<double>(), want.mean().item<double>(), margin);
    EXPECT_NEAR(got.std().item<double>(), want.std().item<double>(), margin);
    EXPECT_LE(got.abs().max().item<double>(), 0.1 + 1e-6) << "1 / sqrt(100)";
    EXPECT_GE(got.abs().max().item<double>(), 0.099);
  };
  // Ten standard errors and more of 0.058 / sqrt(n).
  compare(layer->master_weight(), torchs->weight, 0.002);
  compare(layer->master_bias(), torchs->bias, 0.02);
}

TEST(ColumnParallelLinear, BeginsWithXaviersWeightsAndNoBias) {
  torch::manual_seed(1);
  const ColumnParallelLinear layer(100, 2000);
  // Ten standard errors of a standard deviation of sqrt(2 / (in + out)).
  const double deviation = std::sqrt(2.0 / 2100);
  EXPECT_NEAR(layer->master_weight().std().item<double>(), deviation, 0.016 * deviation);
  EXPECT_EQ(layer->master_bias().abs().max().item<double>(), 0);
}

TEST(ColumnParallelLinear, ComputesNothingOnTheMetaDevice) {
  on_ranks(
      [](const Group& group) {
        ColumnParallelOptions options;
        options.device = at::kMeta;
        const ColumnParallelLinear layer(1 << 20, 1 << 20, group, options);
        const auto parameters = layer->named_parameters();
        EXPECT_TRUE(parameters["inner.weight"].is_meta());
        EXPECT_EQ(parameters["inner.weight"].size(0), (1 << 20) / group.size());
      },
      {1, 2});
}

TEST(ColumnParallelLinear, PrintsTheWholesSizes) {
  on_ranks(
      [](const Group& group) {
        std::ostringstream text;
        ColumnParallelLinear(kColumnIn, kColumnOut, group)->pretty_print(text);
        EXPECT_EQ(text.str(),
                  "weft::nn::ColumnParallelLinear(in_features=7, out_features=18, ranks=2)");
      },
      {2});
}

TEST(ColumnParallelLinear, RefusesSizesThatCannotBeCutOnAllRanks) {
  on_ranks(
      [](const Group& group) {
        ColumnParallelOptions options;
        EXPECT_EQ(error_text([&] { ColumnParallelLinear(kColumnIn, 2, group, options); }),
                  "ConfigError: nn.ColumnParallelLinear: out_features: 2 units of 1 cannot be cut "
                  "over 3 ranks; use 1 to 2 ranks");
        options.stride = 4;
        EXPECT_EQ(error_text([&] { ColumnParallelLinear(kColumnIn, kColumnOut, group, options); }),
                  "ShapeError: nn.ColumnParallelLinear: out_features 18 in 4 equal segments "
                  "(stride), expected a multiple");
        options.stride = 9;
        EXPECT_EQ(error_text([&] { ColumnParallelLinear(kColumnIn, kColumnOut, group, options); }),
                  "ConfigError: nn.ColumnParallelLinear: out_features: 2 units of 1 cannot be cut "
                  "over 3 ranks; use 1 to 2 ranks");
        EXPECT_EQ(error_text([&] { ColumnParallelLinear(0, kColumnOut, group); }),
                  "ShapeError: nn.new_linear: weight [18, 0], expected at least [1, 1]");
        ColumnParallelLinear layer(kColumnIn, kColumnOut, group);
        EXPECT_EQ(error_text([&] {
                    layer->forward(seeded({2, 5}, 1, at::kFloat));
                  }),
                  "ShapeError: nn.DenseLinear: input [2, 5], expected the last dim to be 7");
      },
      {3});
}

}  // namespace
}  // namespace weft::nn
