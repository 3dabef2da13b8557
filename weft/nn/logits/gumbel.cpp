#include "weft/nn/logits/gumbel.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "weft/core/each_width.h"
#include "weft/nn/random/philox.h"

namespace weft::nn {
namespace {

// One call makes the random bits of four tokens.
constexpr int64_t kCallTokens = 4;
constexpr size_t kCalls = 32;
constexpr size_t kBlock = kCalls * kCallTokens;

constexpr uint32_t low(uint64_t number) { return static_cast<uint32_t>(number); }
constexpr uint32_t high(uint64_t number) { return static_cast<uint32_t>(number >> 32); }

// nn::philox of kCalls counters, one after the other from `first`, in loops that compilers make
// vectors of: lanes are as wide as products.
inline __attribute__((always_inline)) void philox_calls(const GumbelDraw& draw, uint64_t first,
                                                        std::array<uint32_t, kBlock>& bits) {
  std::array<uint64_t, kCalls> x0, x1, x2, x3;
  for (size_t i = 0; i < kCalls; ++i) {
    x0[i] = low(first + i);
    x1[i] = high(first + i);
    x2[i] = low(draw.index);
    x3[i] = high(draw.index);
  }
  uint32_t key0 = low(draw.seed), key1 = high(draw.seed);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    for (size_t i = 0; i < kCalls; ++i) {
      const uint64_t product0 = kPhiloxFactors[0] * low(x0[i]);
      const uint64_t product2 = kPhiloxFactors[1] * low(x2[i]);
      x0[i] = high(product2) ^ x1[i] ^ key0;
      x1[i] = product2;
      x2[i] = high(product0) ^ x3[i] ^ key1;
      x3[i] = product0;
    }
    key0 += kPhiloxSteps[0];
    key1 += kPhiloxSteps[1];
  }
  for (size_t i = 0; i < kCalls; ++i) {
    bits[4 * i] = low(x0[i]);
    bits[4 * i + 1] = low(x1[i]);
    bits[4 * i + 2] = low(x2[i]);
    bits[4 * i + 3] = low(x3[i]);
  }
}

// Between 0 and 1, and neither.
constexpr double kUnit = 0x1.0p-32;
double uniform(uint32_t bits) { return (bits + 0.5) * kUnit; }

// The sum of a token whose number is u. Gumbel's number is -ln E, E exponential: near 0, where
// large sums come from, E is as exact as u.
double sum_of(double u, double logit, double temperature) {
  return logit / temperature - std::log(-std::log1p(-u));
}

// Marks the tokens of a block whose sums may be `least` or more. E is at least u, so that a token
// that lies d behind needs e^d u < 1; instead of e^d its first terms are enough to rule most out.
// The slack covers rounding.
WEFT_FOR_EACH_WIDTH
bool mark_likely(const GumbelDraw& draw, uint64_t first_call, const float* logits, double least,
                 std::array<double, kBlock>& u) {
  constexpr double kSlack = 1 + 1e-6;
  std::array<uint32_t, kBlock> bits;
  philox_calls(draw, first_call, bits);
  const double scale = 1 / draw.temperature;
  int any = 0;
  for (size_t i = 0; i < kBlock; ++i) {
    // Conversions of signed numbers are those that vectors have.
    const auto shifted = static_cast<int32_t>(bits[i] ^ 0x80000000U);
    u[i] = (static_cast<double>(shifted) + 0x1.0p31 + 0.5) * kUnit;
    const double behind = std::max(0.0, least - logits[i] * scale);
    const double terms =
        1 + behind * (1 + behind * (1.0 / 2 + behind * (1.0 / 6 + behind * (1.0 / 24))));
    const bool is_likely = terms * u[i] <= kSlack;
    u[i] = is_likely ? u[i] : 1;
    any |= is_likely ? 1 : 0;
  }
  return any != 0;
}

}  // namespace

uint32_t random_bits(const GumbelDraw& draw, int64_t token) {
  const auto call = static_cast<uint64_t>(token / kCallTokens);
  const auto bits = philox({low(call), high(call), low(draw.index), high(draw.index)},
                           {low(draw.seed), high(draw.seed)});
  return bits[static_cast<size_t>(token % kCallTokens)];
}

double gumbel_sum(const GumbelDraw& draw, int64_t token, double logit) {
  return sum_of(uniform(random_bits(draw, token)), logit, draw.temperature);
}

// Few tokens need their logarithms, where the likeliest one's sum is known first.
Largest largest_gumbel_sum(const GumbelDraw& draw, std::span<const float> logits, int64_t first) {
  const Largest likeliest = largest(logits);
  if (!std::isfinite(likeliest.value)) return likeliest;
  Largest best = {gumbel_sum(draw, first + likeliest.place, likeliest.value), likeliest.place};
  const auto take = [&](double sum, int64_t place) {
    if (sum > best.value || (sum == best.value && place < best.place)) best = {sum, place};
  };
  const int64_t size = std::ssize(logits);
  int64_t place = 0;
  const auto take_one = [&] {
    take(gumbel_sum(draw, first + place, logits[static_cast<size_t>(place)]), place);
    ++place;
  };
  while (place < size && (first + place) % kCallTokens != 0) take_one();
  std::array<double, kBlock> u;
  for (; place + std::ssize(u) <= size; place += std::ssize(u)) {
    const float* const block = logits.data() + place;
    const auto call = static_cast<uint64_t>((first + place) / kCallTokens);
    if (!mark_likely(draw, call, block, best.value, u)) continue;
    for (size_t i = 0; i < u.size(); ++i) {
      if (u[i] < 1) {
        take(sum_of(u[i], block[i], draw.temperature), place + static_cast<int64_t>(i));
      }
    }
  }
  while (place < size) take_one();
  return best;
}

}  // namespace weft::nn
