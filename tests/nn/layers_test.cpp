#include <gtest/gtest.h>

#include <cmath>

#include "weft/core/error.h"
#include "weft/nn/attention.h"
#include "weft/nn/kv_cache.h"
#include "weft/nn/norm.h"
#include "weft/nn/rope.h"

namespace weft::nn {
namespace {

TEST(RMSNorm, EqualsTheFormulaInDouble) {
  const at::Tensor x = at::randn({3, 8}), weight = at::randn({8});
  const at::Tensor exact = x.to(at::kDouble);
  const at::Tensor expected = exact / (exact.pow(2).mean(-1, true) + 1e-5).sqrt() * weight;
  EXPECT_TRUE(at::allclose(RMSNorm(weight, 1e-5)->forward(x), expected.to(at::kFloat), 1e-5, 1e-6));
}

TEST(Rope, TurnsPairsByPositionTimesFrequency) {
  constexpr int64_t kStart = 5, kTokens = 3, kDim = 8;
  const Rope rope(kDim, 100.0, 16);
  const at::Tensor x_BTnH = at::randn({1, kTokens, 2, kDim});
  const at::Tensor y_BTnH = rope.apply(x_BTnH, kStart);
  for (int64_t t = 0; t < kTokens; ++t) {
    for (int64_t head = 0; head < 2; ++head) {
      for (int64_t i = 0; i < kDim / 2; ++i) {
        const double angle = static_cast<double>(kStart + t) * std::pow(100.0, -2.0 * i / kDim);
        const double a = x_BTnH[0][t][head][i].item<double>();
        const double b = x_BTnH[0][t][head][i + kDim / 2].item<double>();
        EXPECT_NEAR(y_BTnH[0][t][head][i].item<double>(), a * std::cos(angle) - b * std::sin(angle),
                    1e-5);
        EXPECT_NEAR(y_BTnH[0][t][head][i + kDim / 2].item<double>(),
                    b * std::cos(angle) + a * std::sin(angle), 1e-5);
      }
    }
  }
}

TEST(Rope, RefusesPositionsBehindTheTable) {
  const Rope rope(4, 10'000.0, 8);
  try {
    rope.apply(at::ones({1, 4, 1, 4}), 6);
    FAIL() << "expected a ShapeError";
  } catch (const core::ShapeError& error) {
    EXPECT_STREQ(error.what(),
                 "nn.Rope: positions 6 to 10, expected at most 8; use a shorter prompt or a larger "
                 "context");
  }
}

// softmax(q k / sqrt(H)) v, one query at a time.
at::Tensor naive_attention(const at::Tensor& q_BnTH, const at::Tensor& k_BkSH,
                           const at::Tensor& v_BkSH, const std::vector<int64_t>& kv_of_head) {
  const int64_t tokens = q_BnTH.size(2), positions = k_BkSH.size(2), dim = q_BnTH.size(3);
  at::Tensor y_BTnH = at::empty({q_BnTH.size(0), tokens, q_BnTH.size(1), dim});
  for (int64_t b = 0; b < q_BnTH.size(0); ++b) {
    for (int64_t head = 0; head < q_BnTH.size(1); ++head) {
      for (int64_t t = 0; t < tokens; ++t) {
        const int64_t seen = positions - tokens + t + 1;
        const at::Tensor k_SH = k_BkSH[b][kv_of_head[head]].narrow(0, 0, seen);
        const at::Tensor v_SH = v_BkSH[b][kv_of_head[head]].narrow(0, 0, seen);
        const at::Tensor scores = at::mv(k_SH, q_BnTH[b][head][t]) / std::sqrt(dim);
        y_BTnH[b][t][head].copy_(at::mv(v_SH.t(), scores.softmax(0)));
      }
    }
  }
  return y_BTnH.flatten(2);
}

TEST(GroupedQueryAttention, EqualsTheNaiveLoop) {
  struct Case {
    int64_t tokens, positions, num_kv;
    std::vector<int64_t> kv_of_head;
  };
  const std::vector<Case> cases = {
      {5, 5, 2, {0, 0, 1, 1}}, {3, 7, 2, {0, 0, 1, 1}}, {1, 6, 2, {0, 0, 0, 1, 1, 1}},
      {1, 6, 2, {0, 1, 1}},    {4, 4, 2, {0, 1, 1}},    {2, 9, 1, {0, 0, 0}},
  };
  for (const Case& each : cases) {
    const auto heads = static_cast<int64_t>(each.kv_of_head.size());
    const at::Tensor q = at::randn({2, heads, each.tokens, 8});
    const at::Tensor k = at::randn({2, each.num_kv, each.positions, 8});
    const at::Tensor v = at::randn({2, each.num_kv, each.positions, 8});
    EXPECT_TRUE(at::allclose(grouped_query_attention(q, k, v, each.kv_of_head),
                             naive_attention(q, k, v, each.kv_of_head), 1e-4, 1e-5))
        << each.tokens << " tokens, " << each.positions << " positions, " << heads << " heads";
  }
}

TEST(KvCache, KeepsWhatIsAppendedAndForgetsWhatIsTruncated) {
  KvCache cache({1, 1, 2, 4, 6});
  const at::Tensor first = at::randn({1, 2, 4, 4}), second = at::randn({1, 2, 2, 4});
  cache.append(0, first, first);
  cache.advance(4);
  const auto [keys, values] = cache.append(0, second, second);
  EXPECT_TRUE(keys.equal(at::cat({first, second}, 2)));
  EXPECT_TRUE(values.equal(keys));
  cache.advance(2);
  cache.truncate(1);
  EXPECT_TRUE(
      cache.append(0, second, second).first.equal(at::cat({first.narrow(2, 0, 1), second}, 2)));
}

TEST(KvCache, RefusesMoreThanItHolds) {
  KvCache cache({1, 1, 1, 2, 3});
  const at::Tensor x = at::ones({1, 1, 4, 2});
  try {
    cache.append(0, x, x);
    FAIL() << "expected a ConfigError";
  } catch (const core::ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "nn.KvCache: 4 positions, expected at most 3; use a larger --ctx-size or fewer "
                 "tokens");
  }
}

}  // namespace
}  // namespace weft::nn
