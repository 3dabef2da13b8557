#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "weft/dist/group.h"
#include "weft/dist/parallelism.h"
#include "weft/shard/layout.h"

namespace weft::nn {

/// What becomes of one parameter or buffer when a module is cut in place.
struct ParameterRule {
  enum class Kind { kKeep, kCut, kFirstRank };
  Kind kind = Kind::kKeep;
  shard::Split split = {};

  /// Whole on every rank.
  static ParameterRule keep() { return {}; }
  /// Along `dim` (negative: from the end), in segments, units uncut; shards may differ by a unit.
  static ParameterRule cut(int64_t dim, std::vector<int64_t> segments = {}, int64_t unit = 1) {
    return {Kind::kCut, {dim, std::move(segments), unit}};
  }
  /// Whole on the group's first rank, zeros without gradient on the others: for the bias of a layer
  /// whose outputs are summed over the ranks, so that it is added once.
  static ParameterRule first_rank() { return {Kind::kFirstRank, {}}; }
};

/// Decides by the path of a parameter or buffer, e.g. "experts.weight", and its whole value.
using ShardRule = std::function<ParameterRule(const std::string& path, const at::Tensor& whole)>;

/// How one parameter was cut.
struct InplaceShard {
  ParameterRule::Kind kind = ParameterRule::Kind::kCut;
  shard::Layout layout;
  bool requires_grad = false;
};
/// By path; what unshard_inplace needs.
using InplaceShards = std::map<std::string, InplaceShard>;

/// Cuts the parameters and buffers of any module as `rule` says, in their places: a convolution's
/// channels, a stack of experts [E, out, in], a fused qkv. Shards own their memory and the wholes
/// are released, gradients are dropped. Parameters stay the tensors that they were, so that an
/// optimizer made before goes on with them, as long as it has no state of the wholes' shapes. The
/// module's forward is as before: ops::mp_copy before it and ops::mp_reduce after it are the
/// caller's. Collective. Refuses on all ranks, before anything is changed: CommError for wholes
/// that differ between ranks; ConfigError for what is cut over this group already, for sizes that
/// leave a rank with nothing, for a bias kept whole beside a weight that is cut (it would be added
/// once per rank) and for a parallel layer; ShapeError for a dim, segments or a unit that do not
/// fit.
InplaceShards shard_inplace(torch::nn::Module& module, const ShardRule& rule,
                            const dist::Group& group);

/// MLX's two rules, by name: "all-to-sharded" cuts the last dim but one of everything (a vector's
/// only one), "sharded-to-all" the last dim of all but biases, which the first rank alone keeps.
/// Fused parameters are `segments` equal parts along that dim, each cut on its own. Throws
/// ConfigError for another name, ShapeError for a size that `segments` does not divide.
ShardRule shard_rule(std::string_view sharding, int64_t segments = 1);

/// shard_inplace by one of these. Collective.
InplaceShards shard_inplace(torch::nn::Module& module, std::string_view sharding,
                            const dist::Group& group = dist::model_group(), int64_t segments = 1);

/// Puts the wholes back on every rank. Collective.
void unshard_inplace(torch::nn::Module& module, const InplaceShards& shards,
                     const dist::Group& group);

}  // namespace weft::nn
