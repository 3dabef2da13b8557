#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "weft/nn/linear/linear_like.h"
#include "weft/quant/scheme.h"

namespace weft::nn {

/// A linear layer somewhere in a module, where it may be exchanged.
struct HeldLinear {
  /// The place's own path, e.g. "layers.0.wq", however many layers are wrapped around its weight;
  /// empty if it is the module itself.
  std::string path;
  LinearHolder* holder = nullptr;
};

/// All of them, in the module's order: weft::nn::Linear, the parallel layers, the vocabulary
/// parallel embedding and head.
std::vector<HeldLinear> find_linears(torch::nn::Module& module);

/// Which layers are meant, by path.
using PathPredicate = std::function<bool(const std::string& path)>;

/// Exchanges the inner linear of every place for which `predicate` holds (null: all) for a
/// quantized one; the base of a LoRA layer is exchanged under its adapter. The values are those of
/// the quantized whole, cut, also where a shard's edge lies within a quant group. Returns how many.
/// Collective over the groups of the layers that are cut by input features.
/// Throws ConfigError for a scheme that does not exist, for no layer, for input features that the
/// group size does not divide, for a torch::nn::Linear (whose place cannot take another layer) and
/// for one quantized already.
int64_t quantize(torch::nn::Module& module, const quant::Scheme& scheme,
                 const PathPredicate& predicate = {});

/// A LoRA adapter's size and start: A is drawn from kaiming_uniform(sqrt 5) of the whole by `seed`
/// and path, the same on any number of ranks; B is zero.
struct LoraOptions {
  int64_t rank = 8;
  /// The adapter's product is multiplied by alpha / rank.
  double alpha = 16;
  uint64_t seed = 0;
  /// LoraLinear::set_dropout; layers differ by their paths.
  double dropout = 0;
  /// The module is a part of a model, which may have none of the layers that a target names.
  bool is_part = false;
};

/// Whether a target of apply_lora names the layer at `path`: that, or the end of it after a dot.
bool is_lora_target(const std::string& path, const std::string& target);

/// Wraps the layers that `targets` name (is_lora_target), e.g. "wq", and freezes every parameter of
/// the module but the adapters'. Before or after sharding: same result. Returns how many. Throws
/// ConfigError for a target that no layer has, listing what there is, unless the module is a part;
/// for a torch::nn::Linear and for a layer that has an adapter.
int64_t apply_lora(torch::nn::Module& module, const std::vector<std::string>& targets,
                   const LoraOptions& options = {});

/// Merge or un-merge all adapters of the module; return how many there are.
int64_t merge_lora(torch::nn::Module& module);
int64_t unmerge_lora(torch::nn::Module& module);

/// Exchanges every LoRA layer for one dense linear that computes the same. Returns how many.
int64_t fuse_lora(torch::nn::Module& module);

}  // namespace weft::nn
