#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weft/nn/parallel/shard_inplace.h"
#include "weft/shard/layout.h"

namespace weft::nn {

/// What a rank's gradient of a parameter is, once backward is over.
enum class GradientKind {
  /// That of the whole loss: equal on all ranks that hold the element.
  kComplete,
  /// This rank's part of a sum over the model group, which someone still has to make.
  kPartial,
};

/// A parameter of a module that may be cut over a group, seen as a part of its whole.
struct ParameterInfo {
  /// The path of the layer that it belongs to and its own name, whatever is wrapped around its
  /// weight: "layers.0.wq.weight".
  std::string name;
  /// This rank's shard.
  at::Tensor tensor;
  /// The whole's sizes.
  std::vector<int64_t> sizes;
  /// Which part of the whole each rank of the model group holds; none: all of it.
  std::optional<shard::Layout> cut;
  /// weft's layers make their gradients complete; your own module may say otherwise.
  GradientKind gradient = GradientKind::kComplete;
  /// The stages of a pipeline that hold the parameter, ascending (a tied embedding): what each has
  /// is its part of the gradient. Empty: this stage alone. A trainer finds them.
  std::vector<int64_t> stages = {};
};

/// All parameters that need a gradient, each once, in the module's order; one that is shared by
/// several places (a tied head) has the name of the first. How weft's layers are cut is known;
/// `inplace` is what shard_inplace returned for others. Not collective. Throws ConfigError for a
/// parameter whose cut can't be known (ShardedRMSNorm without a layout and an entry in `inplace`).
std::vector<ParameterInfo> describe_parameters(const torch::nn::Module& module,
                                               const InplaceShards& inplace = {});

/// Bytes of a module's parameters and buffers, those of modules that it has several times once.
int64_t held_bytes(const torch::nn::Module& module);

}  // namespace weft::nn
