#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace weft::nn {

/// A trained adapter of one layer, whole: what the layer gives gains scale (x A^T) B^T.
struct LoraFactors {
  /// A [r, in], floating.
  at::Tensor a;
  /// B [out, r], floating.
  at::Tensor b;
  double scale = 1;
};

/// Puts trained adapters beside the layers at `places` (HeldLinear::path), for sequences that use
/// `number` (AdapterScope): each rank keeps its part of what `factors` gives for a place, which is
/// asked for one place at a time. Nothing is fused, and no gradient is needed. Throws ConfigError
/// for a place without a layer and for a layer that has an adapter of that number or one that
/// trains, ShapeError unless A and B fit the whole layer. Not collective.
void attach_lora(torch::nn::Module& module, const std::vector<std::string>& places,
                 const std::function<LoraFactors(const std::string& place)>& factors,
                 int64_t number = 0);

}  // namespace weft::nn
