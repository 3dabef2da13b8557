#include "weft/generate/scoring/perplexity.h"

#include <c10/core/InferenceMode.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include "weft/core/error.h"

namespace weft::generate {
namespace {

// Positions whose logits exist at a time.
constexpr int64_t kPositions = 128;

// Sums of the losses and of their squares.
struct Sums {
  int64_t count = 0;
  double loss = 0;
  double square = 0;

  void add(const at::Tensor& losses, int64_t window) {
    const auto* data = losses.const_data_ptr<float>();
    for (int64_t i = 0; i < losses.numel(); ++i) {
      const double value = data[i];
      core::check<core::FormatError>(std::isfinite(value), kPerplexity, ": window ", window,
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

void score(models::CausalLM& model, const at::Tensor& ids_BT, const ScoredWindow& window,
           nn::KvCache* cache, Sums& sums) {
  const at::Tensor x_BTD = model.forward(ids_BT, cache);
  for (int64_t begin = window.first_scored; begin < window.length; begin += kPositions) {
    const int64_t end = std::min(begin + kPositions, window.length);
    const at::Tensor losses_BT =
        model.token_losses(x_BTD.slice(1, begin - 1, end - 1), ids_BT.slice(1, begin, end));
    sums.add(losses_BT.contiguous(), window.start);
  }
}

}  // namespace

PerplexityResult perplexity(models::CausalLM& model, std::span<const int64_t> tokens,
                            const PerplexityOptions& options, const PerplexityProgress& progress) {
  const auto windows = score_windows(static_cast<int64_t>(tokens.size()), options);
  check_scored(model.config(), tokens, options);
  const c10::InferenceMode inference;
  const auto begin = std::chrono::steady_clock::now();
  std::optional<nn::KvCache> cache;
  Sums sums;
  PerplexityResult result;
  for (const ScoredWindow& window : windows) {
    const auto ids_BT = window_ids(tokens, window, options);
    begin_cache(model, window, options, cache);
    score(model, ids_BT, window, cache ? &*cache : nullptr, sums);
    result = sums.result(result.num_windows + 1);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    result.seconds = elapsed.count();
    progress(result, static_cast<int64_t>(windows.size()));
  }
  return result;
}

}  // namespace weft::generate
