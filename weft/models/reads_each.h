#pragma once

#include <ATen/core/Tensor.h>

#include <span>

#include "weft/nn/attention/kv_cache.h"

namespace weft::models {

/// What a model adds that can read one token of each of several sequences in one pass, though each
/// stands at a position of its own.
class ReadsEach {
 public:
  virtual ~ReadsEach() = default;
  /// Whether it can with such caches, as weights are held now.
  virtual bool reads_each(const nn::KvCache& cache) = 0;
  /// The most tokens of a sequence with such a cache that forward takes at once and gives each the
  /// bits that it gives it alone; at least 1.
  virtual int64_t most_as_alone(const nn::KvCache& cache) = 0;
  /// Reads ids_B (int64, equal on all ranks) behind the positions of caches of one sequence each,
  /// which take them up, each with the adapter that nn::AdapterScope names for it. A cache may come
  /// most_as_alone times in a row: its tokens follow one another. Returns hidden states x_B1D after
  /// the last norm: bit for bit what forward gives each token with its cache alone. Throws
  /// ConfigError where a cache has no room. Collective.
  virtual at::Tensor read_each(const at::Tensor& ids_B, std::span<nn::KvCache* const> caches) = 0;
};

}  // namespace weft::models
