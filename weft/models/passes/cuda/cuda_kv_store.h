#pragma once

#include <cstdint>

#include "weft/cuda/buffer.h"
#include "weft/nn/attention/kv_cache.h"

namespace weft::models {

/// Keys and values of all layers on this process's GPU, float32.
class CudaKvStore : public nn::KvStore {
 public:
  /// The sizes of every layer's [batch, kv_heads, capacity, head_dim].
  struct Sizes {
    int64_t num_layers, batch, kv_heads, capacity, head_dim;
    int64_t of_layer() const { return batch * kv_heads * capacity * head_dim; }
    bool operator==(const Sizes&) const = default;
  };
  explicit CudaKvStore(const Sizes& sizes);
  int64_t num_bytes() const override { return keys_.num_bytes() + values_.num_bytes(); }
  void copy(int64_t to, const KvStore& from, int64_t start, int64_t count) override;
  const Sizes& sizes() const { return sizes_; }
  float* keys(int64_t layer) const { return keys_.as<float>() + layer * sizes_.of_layer(); }
  float* values(int64_t layer) const { return values_.as<float>() + layer * sizes_.of_layer(); }

 private:
  Sizes sizes_;
  cuda::Buffer keys_, values_;
};

}  // namespace weft::models
