#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "weft/generate/options.h"
#include "weft/models/model.h"

namespace weft::generate {

/// How far a model's predictions of a text are from a reference's, as llama.cpp's --kl-divergence
/// tells it.
struct DivergenceResult {
  int64_t num_windows = 0;
  int64_t num_scored = 0;
  /// Of KL(reference || model) over the scored positions, in nats: the mean, its standard error,
  /// the median, the value that 99.9 % of the positions don't exceed, and the largest.
  double mean = 0;
  double standard_error = 0;
  double median = 0;
  double p99_9 = 0;
  double largest = 0;
  /// The share of positions, 0 to 1, where both have the same likeliest token, and its standard
  /// error.
  double same_best = 0;
  double same_best_error = 0;
  /// Of the text by each of them.
  double perplexity = 0;
  double reference_perplexity = 0;
  /// For all windows of both, without loading.
  double seconds = 0;
};

/// Sees how many windows are done of how many, on every rank.
using DivergenceProgress = std::function<void(int64_t done, int64_t windows)>;

/// Reads the windows of `tokens` with both models and compares all their logits at each scored
/// position. `options` are as perplexity() takes them; the reference is read without a cache.
/// Collective over the group of both; the result is the same on all ranks. Throws ConfigError as
/// perplexity() and for models with different vocabularies, FormatError for logits that are no
/// numbers.
DivergenceResult divergence(models::CausalLM& model, models::CausalLM& reference,
                            std::span<const int64_t> tokens, const PerplexityOptions& options,
                            const DivergenceProgress& progress);

}  // namespace weft::generate
