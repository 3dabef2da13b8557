#include "weft/nn/logits/gumbel.h"

#include <ATen/core/PhiloxRNGEngine.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <random>
#include <vector>

namespace weft::nn {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Torch's engine names the halves of the counter otherwise: where a subsequence is, and which.
TEST(Gumbel, HasTheBitsOfTorchsPhilox) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 200; ++i) {
    const GumbelDraw draw{random(), i % 3 == 0 ? random() : i % 7U, 1};
    const auto token = static_cast<int64_t>(random() % 200'000);
    at::Philox4_32 engine(draw.seed, draw.index, static_cast<uint64_t>(token / 4));
    uint32_t bits = engine();
    for (int64_t j = 0; j < token % 4; ++j) bits = engine();
    ASSERT_EQ(random_bits(draw, token), bits) << token;
  }
}

std::vector<float> random_logits(std::mt19937_64& random, size_t size, float spread) {
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> logits(size);
  // Few enough values that some are alike; some tokens are ruled out.
  for (float& each : logits) each = std::round(normal(random) * 64) / 64;
  for (size_t i = 0; i < size / 50; ++i) logits[random() % size] = -kInfinity;
  return logits;
}

Largest by_definition(const GumbelDraw& draw, std::span<const float> logits, int64_t first) {
  Largest best;
  for (int64_t i = 0; i < std::ssize(logits); ++i) {
    const double sum = gumbel_sum(draw, first + i, logits[static_cast<size_t>(i)]);
    if (sum > best.value) best = {sum, i};
  }
  return best;
}

TEST(Gumbel, LargestSumIsThatOfAllSumsWhereverTheVocabularyIsCut) {
  std::mt19937_64 random(5);
  for (int i = 0; i < 600; ++i) {
    const std::vector<float> logits =
        random_logits(random, 1 + random() % 3000, i % 4 == 0 ? 0.01F : 4.0F);
    const double temperature = std::pow(10.0, static_cast<double>(i % 17) / 2 - 6);
    const GumbelDraw draw{random(), random() % 1000, temperature};
    const Largest expected = by_definition(draw, logits, 0);
    const size_t cut = random() % (logits.size() + 1);
    std::vector<Largest> parts;
    for (const auto& [start, part] : {std::pair(size_t{0}, std::span(logits).first(cut)),
                                      {cut, std::span(logits).subspan(cut)}}) {
      const auto first = static_cast<int64_t>(start);
      parts.push_back(largest_gumbel_sum(draw, part, first));
      parts.back().place += first;
    }
    const Largest found = largest(parts);
    ASSERT_EQ(found.value, expected.value) << i;
    ASSERT_EQ(found.place, expected.place) << i;
  }
}

// Pearson's sum of squares of 40 tokens, at most what 39 degrees of freedom exceed once in 1e6.
TEST(Gumbel, DrawsTokensAsOftenAsTheSoftmaxSays) {
  constexpr size_t kTokens = 40;
  constexpr int kDraws = 40'000;
  constexpr double kMost = 95;
  for (const double temperature : {0.7, 1.0, 3.0}) {
    std::vector<float> logits(kTokens);
    for (size_t i = 0; i < kTokens; ++i) logits[i] = static_cast<float>((i * 7) % kTokens) / 12;
    double sum = 0;
    for (const float each : logits) sum += std::exp(each / temperature);
    std::vector<int> counts(kTokens);
    for (int i = 0; i < kDraws; ++i) {
      const GumbelDraw draw{11, static_cast<uint64_t>(i), temperature};
      ++counts[static_cast<size_t>(largest_gumbel_sum(draw, logits, 5).place)];
    }
    double squares = 0;
    for (size_t i = 0; i < kTokens; ++i) {
      const double expected = kDraws * std::exp(logits[i] / temperature) / sum;
      squares += std::pow(counts[i] - expected, 2) / expected;
    }
    EXPECT_LT(squares, kMost) << temperature;
  }
}

TEST(Gumbel, TellsWhatIsNoLogitAsTheLargestDoes) {
  const GumbelDraw draw{1, 2, 1};
  EXPECT_TRUE(std::isnan(largest_gumbel_sum(draw, std::vector<float>{1, kNan, 2}, 0).value));
  EXPECT_TRUE(std::isnan(largest_gumbel_sum(draw, std::vector<float>(500, kInfinity), 0).value));
  EXPECT_EQ(largest_gumbel_sum(draw, std::vector<float>(500, -kInfinity), 0).value, -kInfinity);
  EXPECT_EQ(largest_gumbel_sum(draw, {}, 0).value, -kInfinity);
}

}  // namespace
}  // namespace weft::nn
