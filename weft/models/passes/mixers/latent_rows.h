#pragma once

#include <cstddef>
#include <cstdint>

#include "weft/models/passes/attention_rows.h"
#include "weft/models/passes/mixers/fused_latent.h"

namespace weft::models {

/// What a cache keeps of a sequence's positions in a layer, R + P numbers each.
class LatentRows {
 public:
  LatentRows(const FusedLatent::Call& call, int64_t sequence, const nn::LatentHeads& heads)
      : heads_(heads), type_(call.caches.front()->dtype()) {
    const nn::KvCache& cache = call.cache_of(sequence);
    row_bytes_ = nn::KvCache::row_bytes(type_, heads.kept_dim());
    const int64_t before = call.has_own_caches() ? 0 : sequence * cache.capacity();
    first_ = static_cast<std::byte*>(cache.keys(call.layer)) + before * row_bytes_;
  }

  std::byte* row(int64_t position) const { return first_ + position * row_bytes_; }
  void write(const float* kept, int64_t position) const {
    cache_kernel_of(type_).narrow(kept, row(position), heads_.kept_dim());
  }
  /// The latent of a position, [R], and its turned key features, [P].
  void read_latent(int64_t position, float* to) const {
    cache_kernel_of(type_).widen(row(position), to, heads_.rank);
  }
  void read_turned(int64_t position, float* to) const {
    const int64_t before = nn::KvCache::row_bytes(type_, heads_.rank);
    cache_kernel_of(type_).widen(row(position) + before, to, heads_.rope_dim);
  }

 private:
  const nn::LatentHeads& heads_;
  at::ScalarType type_;
  int64_t row_bytes_ = 0;
  std::byte* first_ = nullptr;
};

}  // namespace weft::models
