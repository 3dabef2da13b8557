#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "weft/generate/options.h"
#include "weft/generate/scoring/windows.h"
#include "weft/models/model.h"

namespace weft::generate {

/// What a text's tokens cost the model.
struct PerplexityResult {
  int64_t num_windows = 0;
  int64_t num_scored = 0;
  /// Mean of -ln p over the scored tokens; perplexity is its exponential.
  double mean_loss = 0;
  double perplexity = 0;
  /// Of the perplexity: standard error of the mean loss times the perplexity.
  double standard_error = 0;
  /// For all windows, without loading.
  double seconds = 0;
};

/// Sees the result so far after each window, on every rank.
using PerplexityProgress = std::function<void(const PerplexityResult& so_far, int64_t windows)>;

/// Scores `tokens`, the same on all ranks, which have passed the tokenizer once. Each window is
/// read anew; logits are made for a few positions at a time, and each rank makes
/// those of its part of the vocabulary only. Collective; the result is the same on all ranks.
/// Throws ConfigError as score_windows does and for a token outside of the vocabulary, FormatError
/// for a loss that is not a number.
PerplexityResult perplexity(models::CausalLM& model, std::span<const int64_t> tokens,
                            const PerplexityOptions& options, const PerplexityProgress& progress);

}  // namespace weft::generate
