#include "weft/nn/attention/rope.h"

#include <cmath>
#include <complex>
#include <limits>

#include "tests/core/error_text.h"
#include "tests/ops/tensor_checks.h"

namespace weft::nn {
namespace {

using test::expect_close;
using test::seeded;
using testing::error_text;

// Pair i of a head is the complex number x_i + j x_(i + H/2); position p turns it by p
// base^(-2i/H).
at::Tensor rotated(const at::Tensor& x_BTnH, double base, int64_t start) {
  at::Tensor y_BTnH = x_BTnH.clone();
  auto y = y_BTnH.accessor<double, 4>();
  const int64_t half = x_BTnH.size(3) / 2;
  for (int64_t t = 0; t < y.size(1); ++t) {
    for (int64_t n = 0; n < y.size(2); ++n) {
      for (int64_t i = 0; i < half; ++i) {
        const double angle = static_cast<double>(start + t) *
                             std::pow(base, -static_cast<double>(i) / static_cast<double>(half));
        const std::complex<double> pair(y[0][t][n][i], y[0][t][n][i + half]);
        const std::complex<double> turned = pair * std::polar(1.0, angle);
        y[0][t][n][i] = turned.real();
        y[0][t][n][i + half] = turned.imag();
      }
    }
  }
  return y_BTnH;
}

TEST(Rope, TurnsPairsAsComplexNumbers) {
  const at::Tensor x_BTnH = seeded({1, 40, 3, 16}, 1);
  for (const double base : {10'000.0, 500'000.0}) {
    const Rope rope(16, base, 64);
    for (const int64_t start : {0, 1, 24}) {
      const at::Tensor y = rope.apply(x_BTnH.to(at::kFloat), start);
      expect_close(y, rotated(x_BTnH, base, start), "rotated", 1e-5);
    }
  }
}

TEST(Rope, GivesALaterStartTheSameAsTheWhole) {
  const Rope rope(8, 10'000, 32);
  const at::Tensor x_BTnH = seeded({2, 20, 2, 8}, 1, at::kFloat);
  expect_close(rope.apply(x_BTnH.narrow(1, 7, 13), 7), rope.apply(x_BTnH, 0).narrow(1, 7, 13),
               "positions from 7", 0);
  EXPECT_EQ(rope.max_positions(), 32);
}

TEST(Rope, RotatesTheFirstFeaturesOfALargerHead) {
  const Rope rope(8, 10'000, 32);
  const at::Tensor x_BTnH = seeded({1, 5, 2, 12}, 1, at::kFloat);
  const at::Tensor y = rope.apply(x_BTnH, 3);
  expect_close(y.narrow(-1, 0, 8), rope.apply(x_BTnH.narrow(-1, 0, 8), 3), "rotated", 0);
  expect_close(y.narrow(-1, 8, 4), x_BTnH.narrow(-1, 8, 4), "passed through", 0);
}

TEST(Rope, DividesTheFrequenciesByTheDivisors) {
  const at::Tensor x_BTnH = seeded({1, 9, 2, 8}, 1, at::kFloat);
  RopeOptions options;
  options.dim = 8;
  options.max_positions = 32;
  options.divisors = at::full({4}, 4.0);
  RopeOptions linear = options;
  linear.divisors = at::Tensor();
  linear.scaling.type = RopeType::kLinear;
  linear.scaling.factor = 4;
  expect_close(Rope(options).apply(x_BTnH, 2), Rope(linear).apply(x_BTnH, 2), "divided by 4", 1e-6);
}

TEST(Rope, TakesTheFrequenciesOfTheLengthThatASequenceHasReached) {
  RopeOptions options;
  options.dim = 8;
  options.max_positions = 64;
  options.scaling.type = RopeType::kDynamic;
  options.scaling.factor = 2;
  options.scaling.original_positions = 16;
  const Rope rope(options), plain(8, 10'000, 64);
  const at::Tensor x_BTnH = seeded({1, 8, 2, 8}, 1, at::kFloat);
  expect_close(rope.apply(x_BTnH, 8), plain.apply(x_BTnH, 8), "within the trained length", 0);
  // 32 positions: the base grows by (2 * 32 / 16 - 1)^(8 / 6).
  const Rope grown(8, 10'000 * std::pow(3.0, 8.0 / 6.0), 64);
  expect_close(rope.apply(x_BTnH, 24), grown.apply(x_BTnH, 24), "beyond", 1e-5);
  expect_close(rope.apply(x_BTnH, 8), plain.apply(x_BTnH, 8), "short again", 0);
}

TEST(Rope, TurnsAPartOfThePairsByTheFrequenciesOfAll) {
  RopeOptions options;
  options.dim = 16;
  options.max_positions = 64;
  options.scaling.type = RopeType::kProportional;
  options.scaling.turned_part = 0.25;
  const at::Tensor x_BTnH = seeded({1, 8, 2, 16}, 1, at::kFloat);
  const at::Tensor y = Rope(options).apply(x_BTnH, 8);
  const at::Tensor all = Rope(16, 10'000, 64).apply(x_BTnH, 8);
  for (const int64_t half : {0, 8}) {
    expect_close(y.narrow(-1, half, 2), all.narrow(-1, half, 2), "turned", 0);
    expect_close(y.narrow(-1, half + 2, 6), x_BTnH.narrow(-1, half + 2, 6), "left", 0);
  }
}

TEST(Rope, MultipliesByTheAttentionFactor) {
  RopeOptions options;
  options.dim = 8;
  options.max_positions = 64;
  options.scaling.type = RopeType::kYarn;
  options.scaling.original_positions = 16;
  options.scaling.attention_factor = 1.5;
  const at::Tensor x_BTnH = seeded({1, 8, 2, 8}, 1, at::kFloat);
  expect_close(Rope(options).apply(x_BTnH, 8), 1.5 * Rope(8, 10'000, 64).apply(x_BTnH, 8), "yarn",
               1e-5);
}

TEST(Rope, TakesPositionsOfEveryRow) {
  const Rope rope(8, 10'000, 64);
  const at::Tensor x_BTnH = at::randn({2, 5, 3, 8});
  const at::Tensor positions = at::tensor({0, 1, 2, 0, 1, 7, 8, 0, 1, 2}, at::kLong).view({2, 5});
  const at::Tensor y = rope.angles(positions).apply(x_BTnH);
  const auto part = [](const at::Tensor& all, int64_t row, int64_t start, int64_t length) {
    return all.narrow(0, row, 1).narrow(1, start, length);
  };
  EXPECT_TRUE(at::equal(part(y, 0, 0, 3), rope.apply(part(x_BTnH, 0, 0, 3), 0)));
  EXPECT_TRUE(at::equal(part(y, 0, 3, 2), rope.apply(part(x_BTnH, 0, 3, 2), 0)));
  EXPECT_TRUE(at::equal(part(y, 1, 0, 2), rope.apply(part(x_BTnH, 1, 0, 2), 7)));
  EXPECT_TRUE(at::equal(part(y, 1, 2, 3), rope.apply(part(x_BTnH, 1, 2, 3), 0)));
  EXPECT_EQ(error_text([&] { rope.angles(positions + 60); }),
            "ShapeError: nn.Rope: positions 60 to 68, expected 0 to 63");
  EXPECT_EQ(error_text([&] { rope.angles(positions.to(at::kInt)); }),
            "ShapeError: nn.Rope: positions Int [2, 5], expected int64 [B, T]");
  EXPECT_EQ(error_text([&] {
              rope.angles(positions).apply(at::zeros({1, 5, 3, 8}));
            }),
            "ShapeError: nn.RopeAngles: input [1, 5, 3, 8], expected [2, 5, heads, at least 8]");
}

TEST(Rope, RefusesWhatItCannotRotate) {
  EXPECT_EQ(error_text([] { Rope(7, 10'000, 4); }),
            "ConfigError: nn.Rope: head_dim 7, expected a positive even number");
  EXPECT_EQ(error_text([] { Rope(8, std::numeric_limits<double>::quiet_NaN(), 4); }),
            "ConfigError: nn.Rope: base nan, expected a positive finite number");
  EXPECT_EQ(error_text([] { Rope(8, 10'000, 0); }),
            "ConfigError: nn.Rope: 0 positions, expected at least 1");
  EXPECT_EQ(error_text([] {
              Rope(8, 10'000, 4).apply(at::zeros({1, 3, 1, 8}), 2);
            }),
            "ShapeError: nn.Rope: positions 2 to 5, expected at most 4; use a shorter prompt or a "
            "larger context");
  EXPECT_EQ(error_text([] {
              Rope(8, 10'000, 4).apply(at::zeros({1, 3, 1, 6}), 0);
            }),
            "ShapeError: nn.RopeAngles: input [1, 3, 1, 6], expected [B, 3, heads, at least 8]");
  RopeOptions options;
  options.dim = 8;
  options.max_positions = 4;
  options.divisors = at::ones({3});
  EXPECT_EQ(error_text([&] { const Rope rope(options); }),
            "ShapeError: nn.Rope: 3 frequency divisors, expected 4");
}

}  // namespace
}  // namespace weft::nn
