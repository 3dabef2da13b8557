#pragma once

#include "weft/models/config/config.h"

// What a model's layers read beside the residual stream: it bounds how training may cut and
// recompute them.
namespace weft::models {

/// Whether layers get more than what the layer before them gives.
inline bool has_more_than_stream(const ModelConfig& config) {
  return config.layer_inputs.is_used() || config.reusing.count > 0;
}

/// What of the model needs the residual stream whole, in words; null: nothing.
inline const char* needs_whole_stream(const ModelConfig& config) {
  if (config.layer_inputs.is_used()) return "inputs of each layer";
  if (config.reusing.count > 0) return "keys and values of other layers";
  if (config.latent.is_used()) return "latent attention";
  return config.experts.num_experts > 0 ? "experts" : nullptr;
}

}  // namespace weft::models
