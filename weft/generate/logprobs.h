#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "weft/text/tokenizer/tokenizer.h"

namespace weft::generate {

/// A token and ln of its probability under the model itself, whatever the sampler makes of it.
struct TokenLogprob {
  int64_t token = 0;
  double logprob = 0;
};

/// A token that was drawn, and the likeliest in its place.
struct DrawnToken {
  TokenLogprob drawn;
  std::vector<TokenLogprob> likeliest;
};

/// `token` and the `count` likeliest tokens with ln of their probabilities by `logits`, finite or
/// minus infinity.
DrawnToken logprobs_of(std::span<const float> logits, int64_t token, int64_t count);

/// The bytes of a token; none of one that pads a vocabulary.
std::string text_of(const TokenLogprob& token, const text::Tokenizer& tokenizer);

/// An element of `logprobs.content` as OpenAI's chat completions have it: token, logprob, bytes,
/// and top_logprobs with the likeliest.
nlohmann::json to_json(const DrawnToken& token, const text::Tokenizer& tokenizer);

}  // namespace weft::generate
