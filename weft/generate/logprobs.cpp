#include "weft/generate/logprobs.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

namespace weft::generate {
namespace {

using nlohmann::json;

json one_json(const TokenLogprob& token, const text::Tokenizer& tokenizer) {
  const std::string text = text_of(token, tokenizer);
  const auto* const bytes = reinterpret_cast<const unsigned char*>(text.data());
  return {{"token", text},
          {"logprob", token.logprob},
          {"bytes", std::vector<unsigned>(bytes, bytes + text.size())}};
}

}  // namespace

DrawnToken logprobs_of(std::span<const float> logits, int64_t token, int64_t count) {
  const double best = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - best);
  const auto with_logprob = [&](int64_t id) -> TokenLogprob {
    return {id, logits[static_cast<size_t>(id)] - best - std::log(sum)};
  };
  DrawnToken result{with_logprob(token), {}};
  std::vector<int64_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto end = ids.begin() + std::min<int64_t>(count, std::ssize(ids));
  std::partial_sort(ids.begin(), end, ids.end(), [&](int64_t a, int64_t b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  });
  std::transform(ids.begin(), end, std::back_inserter(result.likeliest), with_logprob);
  return result;
}

std::string text_of(const TokenLogprob& token, const text::Tokenizer& tokenizer) {
  if (token.token >= static_cast<int64_t>(tokenizer.vocab_size())) return "";
  return std::string(tokenizer.bytes(static_cast<text::TokenId>(token.token)));
}

json to_json(const DrawnToken& token, const text::Tokenizer& tokenizer) {
  json one = one_json(token.drawn, tokenizer);
  one["top_logprobs"] = json::array();
  for (const TokenLogprob& likely : token.likeliest) {
    one["top_logprobs"].push_back(one_json(likely, tokenizer));
  }
  return one;
}

}  // namespace weft::generate
