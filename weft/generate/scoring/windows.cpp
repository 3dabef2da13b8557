#include "weft/generate/scoring/windows.h"

#include <ATen/ops/tensor.h>

#include <algorithm>

#include "weft/core/error.h"

namespace weft::generate {
namespace {

using core::check;
using core::ConfigError;

std::vector<ScoredWindow> windows_side_by_side(int64_t num_tokens, int64_t context) {
  check<ConfigError>(context >= 4, kPerplexity, ": windows of ", context,
                     " tokens, expected at least 4 so that a second half can be scored");
  check<ConfigError>(num_tokens >= context, kPerplexity, ": ", num_tokens,
                     " tokens of text, expected at least one window of ", context,
                     "; give a longer text or a smaller --ctx-size");
  std::vector<ScoredWindow> windows;
  for (int64_t start = 0; start + context <= num_tokens; start += context) {
    windows.push_back({start, context, context / 2 + 1});
  }
  return windows;
}

std::vector<ScoredWindow> windows_by_stride(int64_t num_tokens, int64_t context, int64_t stride) {
  check<ConfigError>(context >= 2, kPerplexity, ": windows of ", context,
                     " tokens, expected at least 2");
  check<ConfigError>(stride >= 1 && stride <= context, kPerplexity, ": stride ", stride,
                     ", expected 1 to the window's ", context, "; a longer one skips tokens");
  check<ConfigError>(num_tokens >= 2, kPerplexity, ": ", num_tokens,
                     " tokens of text, expected at least 2; give a longer text");
  std::vector<ScoredWindow> windows;
  int64_t scored_end = 0;
  for (int64_t start = 0; scored_end < num_tokens; start += stride) {
    const int64_t end = std::min(start + context, num_tokens);
    const ScoredWindow window = {start, end - start, std::max<int64_t>(1, scored_end - start)};
    // A window of one token has nothing to score it from.
    if (window.num_scored() > 0) windows.push_back(window);
    scored_end = end;
  }
  return windows;
}

}  // namespace

std::vector<ScoredWindow> score_windows(int64_t num_tokens, const PerplexityOptions& options) {
  return options.stride == 0 ? windows_side_by_side(num_tokens, options.context)
                             : windows_by_stride(num_tokens, options.context, options.stride);
}

void check_scored(const models::ModelConfig& config, std::span<const int64_t> tokens,
                  const PerplexityOptions& options) {
  check<ConfigError>(options.context <= config.max_positions, kPerplexity, ": windows of ",
                     options.context, " tokens, expected at most the model's ",
                     config.max_positions);
  for (const int64_t token : tokens) {
    check<ConfigError>(token >= 0 && token < config.vocab_size, kPerplexity, ": token ", token,
                       ", expected 0 to ", config.vocab_size - 1,
                       "; the tokenizer is of another model");
  }
}

at::Tensor window_ids(std::span<const int64_t> tokens, const ScoredWindow& window,
                      const PerplexityOptions& options) {
  const auto own = tokens.subspan(window.start, window.length);
  at::Tensor ids_BT = at::tensor(at::ArrayRef<int64_t>(own.data(), own.size()), at::kLong);
  if (options.stride == 0 && options.first_token >= 0) {
    *ids_BT.mutable_data_ptr<int64_t>() = options.first_token;
  }
  return ids_BT.unsqueeze(0);
}

void begin_cache(const models::CausalLM& model, const ScoredWindow& window,
                 const PerplexityOptions& options, std::optional<nn::KvCache>& cache) {
  if (!options.uses_cache) return;
  if (cache && cache->capacity() == window.length) {
    cache->truncate(0);
  } else {
    cache.emplace(model.make_cache(1, window.length));
  }
}

}  // namespace weft::generate
