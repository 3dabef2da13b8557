#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "weft/nn/attention/kv_cache.h"

namespace weft::models {

/// The tokens of a fused pass and where their caches stand: row b * tokens + t is token t of
/// sequence b.
struct PassCaches {
  int64_t batch = 1;
  int64_t tokens = 0;
  /// One of all sequences, or one of each, all of one type: then each sequence has one token, and
  /// angles and a position of its own. Several sequences may be tokens of one cache, in their
  /// order.
  std::span<nn::KvCache* const> caches;
  /// The positions before each sequence's token, where each has a cache.
  std::span<const int64_t> starts;

  int64_t rows() const { return batch * tokens; }
  bool has_own_caches() const { return caches.size() > 1; }
  nn::KvCache& cache_of(int64_t sequence) const {
    return *caches[has_own_caches() ? static_cast<size_t>(sequence) : 0];
  }
  /// The positions of a sequence before this pass.
  int64_t start(int64_t sequence) const {
    return has_own_caches() ? starts[static_cast<size_t>(sequence)] : caches.front()->length();
  }
  /// With this pass, of the longest sequence.
  int64_t positions() const {
    return tokens + (has_own_caches() ? std::ranges::max(starts) : caches.front()->length());
  }
};

}  // namespace weft::models
