#include "weft/nn/parallel/init.h"

#include <torch/nn/init.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <cmath>
#include <string>
#include <utility>

#include "tests/core/error_text.h"
#include "tests/ops/tensor_checks.h"
#include "weft/nn/random/philox.h"

namespace weft::nn {
namespace {

using dist::Group;
using shard::Range;
using test::on_ranks;
using testing::error_text;

using Words = std::array<uint32_t, 4>;

// Known answers that Salmon et al. publish with their Random123 library.
TEST(Philox, GivesThePublishedNumbers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t kOnes = 0xffffffff;
  EXPECT_EQ(philox({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

Init first_element_is_seed() {
  return Init::custom([](at::Tensor& whole, uint64_t seed) {
    whole.copy_(at::arange(whole.numel(), at::kFloat).view_as(whole));
    whole.view(-1)[0] = static_cast<double>(seed);
  });
}

std::vector<std::pair<std::string, Init>> all_kinds() {
  return {{"zeros", Init::zeros()},
          {"ones", Init::ones()},
          {"constant", Init::constant(0.3)},
          {"normal", Init::normal(0.5, 2)},
          {"uniform", Init::uniform(-3, 1)},
          {"xavier_uniform", Init::xavier_uniform(1.5)},
          {"xavier_normal", Init::xavier_normal(1.5)},
          {"kaiming_uniform", Init::kaiming_uniform(0.1, FanMode::kFanOut)},
          {"kaiming_normal", Init::kaiming_normal(0, FanMode::kFanIn, Nonlinearity::kRelu)},
          {"trunc_normal", Init::trunc_normal(0.1, 0.5, -0.5, 0.9)},
          {"orthogonal", Init::orthogonal(1.2)},
          {"eye", Init::eye()},
          {"linear_default", Init::linear_default()},
          {"custom", first_element_is_seed()}};
}

at::Tensor cut(const at::Tensor& whole, int64_t dim, const std::vector<Range>& ranges) {
  std::vector<at::Tensor> parts;
  for (const Range& range : ranges) parts.push_back(whole.narrow(dim, range.start, range.length));
  return at::cat(parts, dim);
}

TEST(Init, GivesShardsOfTheSameWholeBitForBit) {
  on_ranks([](const Group& group) {
    const std::vector<int64_t> sizes = {9, 7};
    for (const auto& [name, init] : all_kinds()) {
      const at::Tensor whole = make_shard(init, {sizes}, 42);
      for (const int64_t dim : {0, 1}) {
        const Range mine = shard::part(sizes[dim], group.size(), group.rank());
        const at::Tensor shard = make_shard(init, {sizes, dim, {mine}}, 42);
        EXPECT_TRUE(at::equal(group.all_gather(shard, dim), whole)) << name << " along " << dim;
      }
    }
  });
}

TEST(Init, CutsAnyRangesOfAnyDimInAnyDtype) {
  const std::vector<int64_t> sizes = {5, 6, 4};
  const std::vector<std::vector<Range>> cases = {
      {{0, 1}, {3, 1}}, {{2, 2}}, {{3, 1}, {0, 2}}, {{1, 0}, {1, 3}}};
  for (const auto& init : {Init::normal(), Init::xavier_uniform(), first_element_is_seed()}) {
    for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
      const at::Tensor whole = make_shard(init, {sizes, 0, {}, dtype}, 7, 3);
      for (const int64_t dim : {0, 1, 2, -1}) {
        for (const auto& ranges : cases) {
          const at::Tensor shard = make_shard(init, {sizes, dim, ranges, dtype}, 7, 3);
          EXPECT_TRUE(at::equal(shard, cut(whole, dim, ranges))) << dtype << " along " << dim;
        }
      }
    }
  }
}

TEST(Init, RoundsAHalfTypeFromTheFloatMaster) {
  const at::Tensor master = make_shard(Init::normal(), {{500, 30}}, 5);
  EXPECT_TRUE(at::equal(make_shard(Init::normal(), {{500, 30}, 0, {}, at::kBFloat16}, 5),
                        master.to(at::kBFloat16)));
  EXPECT_TRUE(at::equal(
      make_shard(Init::normal(), {{500, 30}, 0, {}, at::kDouble}, 5).to(at::kFloat), master));
}

TEST(Init, DependsOnSeedAndStreamAndBlocksJoin) {
  // More than one block of the filling loop.
  const at::Tensor whole = make_shard(Init::uniform(), {{700, 1000}}, 1);
  EXPECT_TRUE(at::equal(make_shard(Init::uniform(), {{700, 1000}, 1, {{13, 900}}}, 1),
                        whole.narrow(1, 13, 900)));
  EXPECT_FALSE(at::equal(make_shard(Init::uniform(), {{700, 1000}}, 2), whole));
  EXPECT_FALSE(at::equal(make_shard(Init::uniform(), {{700, 1000}}, 1, 1), whole));
  EXPECT_FALSE(at::equal(make_shard(Init::uniform(), {{700, 1000}}, uint64_t{1} << 32), whole));
  EXPECT_EQ(std::get<0>(at::_unique(whole.to(at::kDouble))).numel() > 650'000, true);
}

// The whole would be 64 GiB.
TEST(Init, ComputesTheShardAlone) {
  const std::vector<int64_t> sizes = {1 << 20, 1 << 14};
  const at::Tensor rows = make_shard(Init::normal(), {sizes, 0, {{(1 << 20) - 3, 3}}}, 1);
  EXPECT_TRUE(at::equal(make_shard(Init::normal(), {sizes, 0, {{(1 << 20) - 1, 1}}}, 1),
                        rows.narrow(0, 2, 1)));
  const at::Tensor first = make_shard(Init::normal(), {sizes, 0, {{0, 1}}}, 1);
  const at::Tensor far = make_shard(Init::normal(), {sizes, 0, {{1 << 19, 1}}}, 1);
  EXPECT_FALSE(at::equal(first, far)) << "2^32 pairs apart, so the counter's second word counts";
}

struct Moments {
  double mean;
  double std;
  double low;
  double high;
};

Moments moments(const at::Tensor& x) {
  const at::Tensor y = x.to(at::kDouble);
  return {y.mean().item<double>(), y.std().item<double>(), y.min().item<double>(),
          y.max().item<double>()};
}

// The standard error of a mean over 200000 numbers is 0.0022 std; 8 of them is never by chance.
constexpr int64_t kRows = 400, kColumns = 500;
constexpr double kMargin = 8.0 / 447.0;

void expect_like(const Init& init, const at::Tensor& reference, const std::string& name) {
  const Moments got = moments(make_shard(init, {{kRows, kColumns}}, 3));
  const Moments want = moments(reference);
  EXPECT_NEAR(got.mean, want.mean, 2 * kMargin * want.std) << name;
  EXPECT_NEAR(got.std, want.std, 2 * kMargin * want.std) << name;
}

void expect_bounds(const Init& init, double low, double high, const std::string& name) {
  const Moments got = moments(make_shard(init, {{kRows, kColumns}}, 3));
  EXPECT_GE(got.low, low - 1e-6) << name;
  EXPECT_LE(got.high, high + 1e-6) << name;
  EXPECT_NEAR(got.low, low, 1e-3 * (high - low)) << name << " comes near its ends";
  EXPECT_NEAR(got.high, high, 1e-3 * (high - low)) << name;
}

TEST(Init, HasTheDistributionsOfTorch) {
  namespace init = torch::nn::init;
  torch::manual_seed(1);
  const auto empty = [] { return at::empty({kRows, kColumns}); };
  expect_like(Init::normal(0.5, 2), init::normal_(empty(), 0.5, 2), "normal");
  expect_like(Init::uniform(-3, 1), init::uniform_(empty(), -3, 1), "uniform");
  expect_like(Init::xavier_uniform(1.5), init::xavier_uniform_(empty(), 1.5), "xavier_uniform");
  expect_like(Init::xavier_normal(1.5), init::xavier_normal_(empty(), 1.5), "xavier_normal");
  expect_like(Init::kaiming_uniform(0.1, FanMode::kFanOut),
              init::kaiming_uniform_(empty(), 0.1, torch::kFanOut), "kaiming_uniform");
  expect_like(Init::kaiming_normal(0, FanMode::kFanIn, Nonlinearity::kRelu),
              init::kaiming_normal_(empty(), 0, torch::kFanIn, torch::kReLU), "kaiming_normal");
  expect_like(Init::kaiming_normal(0, FanMode::kFanIn, Nonlinearity::kTanh),
              init::kaiming_normal_(empty(), 0, torch::kFanIn, torch::kTanh), "of tanh");
  expect_like(Init::orthogonal(1.2), init::orthogonal_(empty(), 1.2), "orthogonal");
  const torch::nn::Linear linear(kColumns, kRows);
  expect_like(Init::linear_default(), linear->weight, "linear_default");
}

TEST(Init, KeepsToItsBounds) {
  expect_bounds(Init::uniform(-3, 1), -3, 1, "uniform");
  const double xavier = 1.5 * std::sqrt(6.0 / (kRows + kColumns));
  expect_bounds(Init::xavier_uniform(1.5), -xavier, xavier, "xavier_uniform");
  const double kaiming = std::sqrt(2 / 1.01) * std::sqrt(3.0 / kRows);
  expect_bounds(Init::kaiming_uniform(0.1, FanMode::kFanOut), -kaiming, kaiming, "kaiming_uniform");
  const double linear = 1 / std::sqrt(static_cast<double>(kColumns));
  expect_bounds(Init::linear_default(), -linear, linear, "linear_default");
  expect_bounds(Init::linear_default_bias(kColumns), -linear, linear, "linear_default_bias");
  expect_bounds(Init::trunc_normal(0.1, 0.5, -0.5, 0.9), -0.5, 0.9, "trunc_normal");
}

double normal_density(double x) { return std::exp(-x * x / 2) / std::sqrt(2 * M_PI); }
double normal_cdf(double x) { return std::erfc(-x / std::sqrt(2.0)) / 2; }

TEST(Init, HasTheMomentsOfATruncatedNormal) {
  const double mean = 0.1, std = 0.5, a = (-0.5 - mean) / std, b = (0.9 - mean) / std;
  const double mass = normal_cdf(b) - normal_cdf(a);
  const double shift = (normal_density(a) - normal_density(b)) / mass;
  const double variance =
      1 + (a * normal_density(a) - b * normal_density(b)) / mass - shift * shift;
  const Moments got =
      moments(make_shard(Init::trunc_normal(mean, std, -0.5, 0.9), {{kRows, kColumns}}, 3));
  EXPECT_NEAR(got.mean, mean + std * shift, kMargin * std);
  EXPECT_NEAR(got.std, std * std::sqrt(variance), kMargin * std);
}

// Shares of a normal distribution within 1, 2 and 3 standard deviations.
TEST(Init, FillsTheTailsOfANormalDistribution) {
  const at::Tensor x = make_shard(Init::normal(), {{kRows, kColumns}}, 3).abs();
  for (const auto& [bound, share] : {std::pair{1.0, 0.682689}, {2.0, 0.954500}, {3.0, 0.997300}}) {
    EXPECT_NEAR((x < bound).to(at::kDouble).mean().item<double>(), share, 0.008) << bound;
  }
  const at::Tensor pairs = make_shard(Init::normal(), {{kRows, kColumns}}, 3).view({-1, 2});
  EXPECT_NEAR((pairs.select(1, 0) * pairs.select(1, 1)).mean().item<double>(), 0, 2 * kMargin)
      << "neighbours are not correlated";
}

TEST(Init, OrthogonalHasOrthonormalRowsOrColumns) {
  for (const std::vector<int64_t>& sizes :
       {std::vector<int64_t>{6, 20}, {20, 6}, {7, 7}, {5, 3, 4}}) {
    const at::Tensor w = make_shard(Init::orthogonal(2), {sizes}, 9).flatten(1).to(at::kDouble);
    const at::Tensor gram = w.size(0) <= w.size(1) ? w.mm(w.t()) : w.t().mm(w);
    test::expect_close(gram, 4 * at::eye(gram.size(0), at::kDouble), core::list_text(sizes), 1e-5);
  }
}

TEST(Init, ComputesNothingOnTheMetaDevice) {
  bool was_called = false;
  const Init init = Init::custom([&](at::Tensor&, uint64_t) { was_called = true; });
  const at::Tensor shard =
      make_shard(init, {{1 << 20, 1 << 20}, 0, {{5, 100}}, at::kBFloat16, at::kMeta}, 1);
  EXPECT_TRUE(shard.is_meta());
  EXPECT_EQ(shard.sizes(), (std::vector<int64_t>{100, 1 << 20}));
  EXPECT_FALSE(was_called);
}

TEST(AgreedSeed, IsThatOfRankZeroAndOneDraw) {
  on_ranks([](const Group& group) {
    torch::manual_seed(5 + static_cast<uint64_t>(group.rank()));
    const uint64_t first = agreed_seed(group), second = agreed_seed(group);
    torch::manual_seed(5);
    const Group alone;
    EXPECT_EQ(first, agreed_seed(alone));
    EXPECT_EQ(second, agreed_seed(alone));
    EXPECT_NE(first, second);
  });
}

TEST(Init, RefusesWhatHasNoMeaning) {
  EXPECT_EQ(error_text([] { make_shard(Init::xavier_normal(), {{5}}, 1); }),
            "ShapeError: nn.Init: fan in and out of a weight [5], expected 2 dims or more; use "
            "uniform or normal for a vector");
  EXPECT_EQ(error_text([] { make_shard(Init::orthogonal(), {{5}}, 1); }),
            "ShapeError: nn.Init.orthogonal: a weight [5], expected 2 dims or more");
  EXPECT_EQ(error_text([] { make_shard(Init::eye(), {{5}}, 1); }),
            "ShapeError: nn.Init.eye: a weight [5], expected 2 dims");
  EXPECT_EQ(error_text([] {
              make_shard(Init::zeros(), {{5}, 0, {}, at::kInt}, 1);
            }),
            "ConfigError: nn.make_shard: dtype Int, expected a floating one");
  EXPECT_EQ(error_text([] {
              make_shard(Init::zeros(), {{5, 4}, 1, {{3, 2}}}, 1);
            }),
            "ShapeError: nn.make_shard: range of 2 from 3 in dim 1 of a whole [5, 4]");
  EXPECT_EQ(error_text([] {
              make_shard(Init::zeros(), {{5, 4}, 2, {{3, 2}}}, 1);
            }),
            "ShapeError: nn.make_shard: dim 2 of a whole with 2 dims");
  EXPECT_EQ(error_text([] { Init::trunc_normal(0, 0); }),
            "ConfigError: nn.Init.trunc_normal: std 0 from -2 to 2, expected std > 0 and low < "
            "high");
  EXPECT_EQ(error_text([] { Init::uniform(1, 0); }),
            "ConfigError: nn.Init.uniform: from 1 to 0, expected low <= high");
  EXPECT_EQ(error_text([] { Init::normal(0, -1); }),
            "ConfigError: nn.Init.normal: std -1, expected 0 or more");
  EXPECT_EQ(error_text([] { Init::custom({}); }),
            "ConfigError: nn.Init.custom: no function; expected one");
}

}  // namespace
}  // namespace weft::nn
