#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "weft/generate/options.h"
#include "weft/models/config/config.h"
#include "weft/models/model.h"
#include "weft/nn/attention/kv_cache.h"

namespace weft::generate {

/// What messages of scored texts begin with.
inline constexpr const char* kPerplexity = "generate.perplexity";

/// Tokens [start, start + length) of the text; those from `first_scored` of the window are scored,
/// each from all that stand before it in the window.
struct ScoredWindow {
  int64_t start = 0;
  int64_t length = 0;
  int64_t first_scored = 1;

  int64_t num_scored() const { return length - first_scored; }
};

/// The windows of a text of `num_tokens`. Throws ConfigError for a context or stride that can't be,
/// and for a text that has no token to score.
std::vector<ScoredWindow> score_windows(int64_t num_tokens, const PerplexityOptions& options);

/// Throws ConfigError for windows that are longer than the model's context and for a token outside
/// of its vocabulary.
void check_scored(const models::ModelConfig& config, std::span<const int64_t> tokens,
                  const PerplexityOptions& options);

/// A window's tokens as the model reads them: int64 [1, T].
at::Tensor window_ids(std::span<const int64_t> tokens, const ScoredWindow& window,
                      const PerplexityOptions& options);

/// Where options.uses_cache: an empty cache as long as the window, as some ropes turn by the length
/// that they may come to; the one that `cache` has where that fits. Collective over the model's
/// group.
void begin_cache(const models::CausalLM& model, const ScoredWindow& window,
                 const PerplexityOptions& options, std::optional<nn::KvCache>& cache);

}  // namespace weft::generate
