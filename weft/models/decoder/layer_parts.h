#pragma once

#include <string>

#include "weft/models/config/config.h"
#include "weft/models/decoder/decoder_names.h"
#include "weft/models/load/weight_source.h"
#include "weft/models/passes/pass.h"
#include "weft/nn/layers/mixture_of_experts.h"
#include "weft/nn/layers/norm.h"
#include "weft/nn/parallel/parallel_linear.h"
#include "weft/shard/heads.h"

namespace weft::models {

/// Layers from this rank's slices of the weights "<base>.weight" and, where there is one,
/// "<base>.bias".
nn::AllToShardedLinear all_to_sharded(const WeightSource& source, const std::string& base,
                                      const dist::Group& group);
nn::ShardedToAllLinear sharded_to_all(const WeightSource& source, const std::string& base,
                                      const dist::Group& group);
/// One that leaves the communication to the module around it.
nn::PartialLinear partial(const WeightSource& source, const std::string& base, nn::ShardKind kind,
                          const dist::Group& group);
/// This rank's heads in a layer.
shard::HeadShard held_heads(const ModelConfig& config, const WeightSource& source, int64_t layer);
nn::RMSNorm norm(const ModelConfig& config, const WeightSource& source, const PartPlace& place);

}  // namespace weft::models
