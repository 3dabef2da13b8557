#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "weft/nn/attention/kv_cache.h"

namespace weft::models {

/// Tokens that are read in several calls, between which the model may read those of other caches.
/// The model and the cache must outlive it, and nobody else may change the cache meanwhile.
class LayeredRead {
 public:
  virtual ~LayeredRead() = default;
  /// Layers that are still to run.
  virtual int64_t num_left() const = 0;
  /// Runs the next `count` layers, at most those left. After the last of them the cache takes the
  /// tokens up. Returns hidden states x_BTD after the last norm, bit for bit those of
  /// CausalLM::forward; undefined while layers are left. Collective.
  virtual at::Tensor run(int64_t count) = 0;
};

/// What a model adds that can stop between the layers of a pass.
class ReadsByLayers {
 public:
  virtual ~ReadsByLayers() = default;
  /// Whether it can with such caches, as weights are held now.
  virtual bool reads_by_layers(const nn::KvCache& cache) = 0;
  /// Begins to read ids_BT (int64, equal on all ranks) behind what the cache has; no layer has run
  /// yet. Throws ConfigError where reads_by_layers is false, or the cache has no room. Collective.
  virtual std::unique_ptr<LayeredRead> begin_read(const at::Tensor& ids_BT, nn::KvCache& cache) = 0;
};

}  // namespace weft::models
