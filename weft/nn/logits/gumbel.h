#pragma once

#include <cstdint>
#include <span>

#include "weft/nn/logits/largest.h"

// Draws that need no sum over the vocabulary. A token is drawn with the probability that softmax
// gives it by adding random numbers with Gumbel's distribution to all logits and taking the
// largest sum (Gumbel 1954; "Gumbel-max trick"). The random numbers are a function of the draw and
// the token alone, so each rank draws among its own part of the vocabulary, and the largest of the
// ranks' sums is the same token, however the vocabulary is cut.
namespace weft::nn {

/// One draw of many.
struct GumbelDraw {
  /// Which of a text's draws it is. Others have independent random numbers.
  uint64_t seed = 0;
  uint64_t index = 0;
  /// What logits are divided by; more than 0.
  double temperature = 1;
};

/// 32 random bits of a token: number `token` % 4 of what nn::philox makes of the counter `token` /
/// 4 in its lower and the draw's index in its upper half, with the seed as its key.
uint32_t random_bits(const GumbelDraw& draw, int64_t token);

/// The token's logit over the temperature, and its random number. Of all tokens that may come, the
/// one with the largest sum is drawn.
double gumbel_sum(const GumbelDraw& draw, int64_t token, double logit);

/// The largest of the sums of logits, the first one of the token `first`, and its place among them;
/// of equal ones the first one. Minus infinities alone, and logits that are NaN or plus infinity,
/// give what nn::largest gives.
Largest largest_gumbel_sum(const GumbelDraw& draw, std::span<const float> logits, int64_t first);

}  // namespace weft::nn
