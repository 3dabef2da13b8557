#include "weft/nn/layers/dropout.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "tests/core/error_text.h"
#include "tests/ops/tensor_checks.h"

namespace weft::nn {
namespace {

using testing::error_text;

at::Tensor ones() { return at::ones({2, 30, 50}); }

TEST(Dropout, DropsAtItsRateAndKeepsTheMean) {
  const Dropout dropout(0.25, 3, 0);
  const at::Tensor y = dropout->forward(at::ones({400, 500}), {});
  EXPECT_NEAR((y == 0).to(at::kFloat).mean().item<double>(), 0.25, 0.005);
  const at::Tensor kept = y.masked_select(y != 0);
  EXPECT_TRUE((kept == static_cast<float>(1 / 0.75)).all().item<bool>());
}

TEST(Dropout, GivesEachRankItsPartOfTheWhole) {
  const Dropout dropout(0.4, 3, 7);
  const at::Tensor whole = dropout->forward(ones(), {9}).view({60, 50});
  ActivationPlace rows{9, 20};
  EXPECT_TRUE(at::equal(dropout->forward(at::ones({1, 17, 50}), rows)[0], whole.narrow(0, 20, 17)));
  ActivationPlace columns{9, 0, 50, {{3, 10}, {40, 5}}};
  EXPECT_TRUE(at::equal(dropout->forward(at::ones({60, 15}), columns),
                        at::cat({whole.narrow(1, 3, 10), whole.narrow(1, 40, 5)}, 1)));
}

TEST(Dropout, DependsOnSeedLayerAndStepAlone) {
  const at::Tensor y = Dropout(0.4, 3, 7)->forward(ones(), {9});
  EXPECT_TRUE(at::equal(Dropout(0.4, 3, 7)->forward(ones(), {9}), y));
  for (const at::Tensor& other :
       {Dropout(0.4, 4, 7)->forward(ones(), {9}), Dropout(0.4, 3, 8)->forward(ones(), {9}),
        Dropout(0.4, 3, 7)->forward(ones(), {10})}) {
    // Independent masks agree on 0.4^2 + 0.6^2 of the elements.
    EXPECT_NEAR((other == y).to(at::kFloat).mean().item<double>(), 0.52, 0.05);
  }
}

TEST(Dropout, PassesTheGradientOfWhatItKept) {
  const at::Tensor x = test::leaf(ones());
  const at::Tensor y = Dropout(0.4, 3, 7)->forward(x, {});
  y.sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), y.detach()));
  EXPECT_EQ(Dropout(0.5, 3, 7)->forward(ones().to(at::kBFloat16), {}).scalar_type(), at::kBFloat16);
}

TEST(Dropout, CostsNothingWhereItDoesNothing) {
  const at::Tensor x = ones();
  EXPECT_TRUE(Dropout(0.0, 3, 7)->forward(x, {}).is_same(x));
  Dropout dropout(0.4, 3, 7);
  dropout->eval();
  EXPECT_TRUE(dropout->forward(x, {}).is_same(x));
}

TEST(Dropout, RefusesRatesAndPartsThatDoNotFit) {
  EXPECT_EQ(error_text([] { Dropout(1.0, 0, 0); }),
            "ConfigError: nn.Dropout: p 1, expected 0 or more, below 1");
  EXPECT_EQ(error_text([] {
              Dropout(0.1, 0, 0)->forward(ones(), {0, 0, 100, {{0, 49}}});
            }),
            "ShapeError: nn.Dropout: input [2, 30, 50], expected the last dim to be 49, this "
            "rank's ranges of 100");
}

}  // namespace
}  // namespace weft::nn
