#include "weft/generate/perplexity.h"

#include <ATen/ops/tensor.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include "weft/core/error.h"

namespace weft::generate {
namespace {

using core::check;
using core::ConfigError;

constexpr const char* kPerplexity = "generate.perplexity";
// Positions whose logits exist at a time.
constexpr int64_t kPositions = 128;

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

// Sums of the losses and of their squares.
struct Sums {
  int64_t count = 0;
  double loss = 0;
  double square = 0;

  void add(const at::Tensor& losses, int64_t window) {
    const auto* data = losses.const_data_ptr<float>();
    for (int64_t i = 0; i < losses.numel(); ++i) {
      const double value = data[i];
      check<core::FormatError>(std::isfinite(value), kPerplexity, ": window ", window,
                               ": a loss of ", value,
                               ", expected a number; the model's weights are damaged");
      loss += value;
      square += value * value;
    }
    count += losses.numel();
  }

  PerplexityResult result(int64_t num_windows) const {
    PerplexityResult result;
    result.num_windows = num_windows;
    result.num_scored = count;
    const auto n = static_cast<double>(count);
    result.mean_loss = loss / n;
    result.perplexity = std::exp(result.mean_loss);
    const double variance = std::max(0.0, square / n - result.mean_loss * result.mean_loss);
    if (count > 1) result.standard_error = std::sqrt(variance / (n - 1)) * result.perplexity;
    return result;
  }
};

void check_tokens(std::span<const int64_t> tokens, int64_t vocab_size) {
  for (const int64_t token : tokens) {
    check<ConfigError>(token >= 0 && token < vocab_size, kPerplexity, ": token ", token,
                       ", expected 0 to ", vocab_size - 1, "; the tokenizer is of another model");
  }
}

// A window's tokens as the model reads them.
at::Tensor window_ids(std::span<const int64_t> tokens, const ScoredWindow& window,
                      int64_t first_token) {
  const auto own = tokens.subspan(window.start, window.length);
  at::Tensor ids_BT = at::tensor(at::ArrayRef<int64_t>(own.data(), own.size()), at::kLong);
  if (first_token >= 0) *ids_BT.mutable_data_ptr<int64_t>() = first_token;
  return ids_BT.unsqueeze(0);
}

void score(models::CausalLM& model, const at::Tensor& ids_BT, const ScoredWindow& window,
           nn::KvCache* cache, Sums& sums) {
  if (cache != nullptr) cache->truncate(0);
  const at::Tensor x_BTD = model.forward(ids_BT, cache);
  for (int64_t begin = window.first_scored; begin < window.length; begin += kPositions) {
    const int64_t end = std::min(begin + kPositions, window.length);
    const at::Tensor losses_BT =
        model.token_losses(x_BTD.slice(1, begin - 1, end - 1), ids_BT.slice(1, begin, end));
    sums.add(losses_BT.contiguous(), window.start);
  }
}

}  // namespace

std::vector<ScoredWindow> score_windows(int64_t num_tokens, const PerplexityOptions& options) {
  return options.stride == 0 ? windows_side_by_side(num_tokens, options.context)
                             : windows_by_stride(num_tokens, options.context, options.stride);
}

PerplexityResult perplexity(models::CausalLM& model, std::span<const int64_t> tokens,
                            const PerplexityOptions& options, const PerplexityProgress& progress) {
  const auto windows = score_windows(static_cast<int64_t>(tokens.size()), options);
  check<ConfigError>(options.context <= model.config().max_positions, kPerplexity, ": windows of ",
                     options.context, " tokens, expected at most the model's ",
                     model.config().max_positions);
  check_tokens(tokens, model.config().vocab_size);
  const c10::InferenceMode inference;
  const auto begin = std::chrono::steady_clock::now();
  std::optional<nn::KvCache> cache;
  if (options.uses_cache) cache.emplace(model.make_cache(1, options.context));
  Sums sums;
  PerplexityResult result;
  for (const ScoredWindow& window : windows) {
    const auto ids_BT = window_ids(tokens, window, options.stride == 0 ? options.first_token : -1);
    score(model, ids_BT, window, cache ? &*cache : nullptr, sums);
    result = sums.result(result.num_windows + 1);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    result.seconds = elapsed.count();
    progress(result, static_cast<int64_t>(windows.size()));
  }
  return result;
}

}  // namespace weft::generate
