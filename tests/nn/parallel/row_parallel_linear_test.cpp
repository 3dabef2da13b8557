#include "weft/nn/parallel/row_parallel_linear.h"

#include <torch/utils.h>

#include <sstream>

#include "tests/core/error_text.h"
#include "tests/nn/layer_checks.h"
#include "weft/nn/linear/quantized_linear.h"

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

constexpr int64_t kRowIn = 18, kRowOut = 5;

void expect_rows_equal_whole(const Group& group, const RowParallelOptions& options) {
  const std::string name = core::join(options.dtype, ", stride ", options.stride, ", parallel ",
                                      options.input_is_parallel, ", bias ", options.bias);
  const double tolerance = test::layer_tolerance(options.dtype);
  RowParallelLinear layer(kRowIn, kRowOut, group, options);
  auto whole = test::whole_linear(*layer);
  const auto own = [&](const at::Tensor& t) {
    return options.input_is_parallel ? own_ranges(t, *layer, -1) : t;
  };
  const at::Tensor x_any = seeded({2, 3, kRowIn}, 1, options.dtype);
  const at::Tensor x = leaf(own(x_any)), x_whole = leaf(x_any.to(at::kDouble));
  const at::Tensor y_whole = whole->forward(x_whole);
  const at::Tensor grad = seeded({2, 3, kRowOut}, 2, options.dtype);
  y_whole.backward(grad.to(at::kDouble));

  const at::Tensor y = layer->forward(x);
  ASSERT_EQ(y.scalar_type(), options.dtype);
  expect_close(y, y_whole, name + ": output", tolerance);
  expect_equal_on_all_ranks(y, group, name + ": output");
  y.backward(grad);
  expect_close(x.grad(), own(x_whole.grad()), name + ": gradient of the input", tolerance);
  const auto parameters = layer->named_parameters();
  expect_close(parameters["inner.weight"].grad(), own_ranges(whole->weight.grad(), *layer, 1),
               name + ": gradient of the weight", tolerance);
  ASSERT_EQ(parameters.size(), options.bias ? 2 : 1);
  if (!options.bias) return;
  expect_close(layer->bias.grad(), whole->bias.grad(), name + ": gradient of the bias", tolerance);
  expect_equal_on_all_ranks(layer->bias.grad(), group, name + ": gradient of the bias");
}

TEST(RowParallelLinear, EqualsTorchsLinearOnTheWhole) {
  on_ranks([](const Group& group) {
    for (const auto dtype : test::layer_dtypes()) {
      for (const int64_t stride : {1, 2, 3}) {
        for (const bool input_is_parallel : {true, false}) {
          for (const bool bias : {true, false}) {
            RowParallelOptions options;
            options.bias = bias;
            options.input_is_parallel = input_is_parallel;
            options.stride = stride;
            options.dtype = dtype;
            expect_rows_equal_whole(group, options);
          }
        }
      }
    }
  });
}

TEST(RowParallelLinear, BeginsAlikeOnAnyNumberOfRanks) {
  on_ranks([](const Group& group) {
    for (const int64_t stride : {1, 3}) {
      RowParallelOptions options;
      options.stride = stride;
      options.init = Init::orthogonal();
      options.bias_init = Init::normal();
      torch::manual_seed(11);
      const RowParallelLinear alone(kRowIn, kRowOut, Group(), options);
      torch::manual_seed(11 + static_cast<uint64_t>(group.rank()));
      RowParallelLinear layer(kRowIn, kRowOut, group, options);
      EXPECT_TRUE(at::equal(layer->master_weight(), alone->master_weight())) << stride;
      EXPECT_TRUE(at::equal(layer->bias.detach(), alone->bias.detach()))
          << "a replicated bias is the same on all ranks whatever their seeds";
      layer->reset_parameters();
      EXPECT_FALSE(at::equal(layer->master_bias(), alone->master_bias())) << "the next draw";
      expect_equal_on_all_ranks(layer->bias, group, "bias");
    }
  });
}

TEST(RowParallelLinear, RefusesToResetWhatIsNotDense) {
  RowParallelLinear layer(64, 8, Group());
  const auto weight = quant::quantize_affine(seeded({8, 64}, 1, at::kFloat), 4, 32, at::kFloat);
  layer->set_inner(std::make_shared<QuantizedLinearImpl>(weight));
  EXPECT_EQ(error_text([&] { layer->reset_parameters(); }),
            "ConfigError: nn.RowParallelLinear.reset_parameters: the inner linear is not dense; "
            "reset it before it is quantized or adapted");
}

TEST(RowParallelLinear, PrintsTheWholesSizes) {
  std::ostringstream text;
  RowParallelLinear(kRowIn, kRowOut, Group())->pretty_print(text);
  EXPECT_EQ(text.str(), "weft::nn::RowParallelLinear(in_features=18, out_features=5, ranks=1)");
}

TEST(RowParallelLinear, RefusesSizesThatCannotBeCutOnAllRanks) {
  on_ranks(
      [](const Group& group) {
        RowParallelOptions options;
        EXPECT_EQ(error_text([&] { RowParallelLinear(2, kRowOut, group, options); }),
                  "ConfigError: nn.RowParallelLinear: in_features: 2 units of 1 cannot be cut over "
                  "3 ranks; use 1 to 2 ranks");
        options.stride = 5;
        EXPECT_EQ(error_text([&] { RowParallelLinear(kRowIn, kRowOut, group, options); }),
                  "ShapeError: nn.RowParallelLinear: in_features 18 in 5 equal segments (stride), "
                  "expected a multiple");
        RowParallelLinear layer(kRowIn, kRowOut, group);
        EXPECT_EQ(error_text([&] {
                    layer->forward(seeded({2, 6}, 1, at::kFloat));
                  }),
                  "ShapeError: nn.RowParallelLinear: input [2, 6], expected the last dim to be 18; "
                  "a shard needs input_is_parallel");
      },
      {3});
}

}  // namespace
}  // namespace weft::nn
