#include "weft/models/passes/modules_pass.h"

#include <utility>

#include "weft/models/options/options.h"
#include "weft/nn/layers/checkpoint.h"

namespace weft::models {

namespace {

// What attention layers, blocks, embedding and head read of the configuration.
constexpr OptionSet kModulesKnow = {
    Option::kWindows,
    Option::kQkvBias,
    Option::kOutputBias,
    Option::kMlpBias,
    Option::kNormsOfEachHead,
    Option::kNormsOfAllHeads,
    Option::kNormsAfter,
    Option::kPartialRope,
    Option::kLayersWithoutRope,
    Option::kEmbeddingScale,
    Option::kAttentionScale,
    Option::kResidualScale,
    Option::kLogitsScale,
    Option::kExperts,
    Option::kNormsBeforeAndAfter,
    Option::kGelu,
    Option::kClampedGate,
    Option::kScoreCap,
    Option::kLogitsCap,
    Option::kRopeOfWindows,
    Option::kQueryGrowth,
    Option::kSinks,
    Option::kRouterBias,
    Option::kExpertBias,
    Option::kTurnsNeighbours,
    Option::kSigmoidRouting,
    Option::kUngatedSharedExpert,
    Option::kShortConvolutions,
    Option::kLatentAttention,
    Option::kGatedDeltaNets,
    Option::kGatedAttention,
    Option::kHeadsByLayer,
    Option::kNormsOfValues,
    Option::kLayerFactors,
    Option::kFfnBesideExperts,
    Option::kLayerInputs,
    Option::kReusedKeys,
};
static_assert(OptionSet::all().without(kModulesKnow).is_empty(),
              "no pass comes after the modules: they have to know every option");

}  // namespace

nn::KvCache::Options cache_options(const PassParts& parts) {
  const ModelConfig& config = parts.config;
  nn::KvCache::Options options;
  options.num_layers = config.num_layers;
  if (config.latent.is_used()) {
    options.num_kv_heads = 1;
    options.head_dim = config.latent.kv_rank + config.rope_dims;
    options.value_dim = 0;
    return options;
  }
  options.heads = parts.kv_heads;
  if (config.recurrent.layers.empty()) return options;
  for (const DecoderBlock& block : parts.blocks) {
    options.states.push_back(block->mixer().state_sizes());
  }
  return options;
}

nn::KvCache ModulesPass::make_cache(const CacheRequest& request) const {
  nn::KvCache::Options options = cache_options(parts_);
  options.batch = request.batch;
  options.capacity = request.capacity;
  options.dtype = request.dtype.value_or(at::kFloat);
  return nn::KvCache(options);
}

at::Tensor ModulesPass::run(const at::Tensor& x_BTD, const PassContext& context) {
  at::Tensor y_BTD = x_BTD;
  for (size_t i = 0; i < parts_.blocks.size(); ++i) y_BTD = run_block(i, y_BTD, context);
  return parts_.last_norm.is_empty() ? y_BTD : parts_.last_norm->forward(y_BTD);
}

at::Tensor ModulesPass::run_block(size_t index, const at::Tensor& x_BTD,
                                  const PassContext& context) const {
  // Backward calls it again, when this pass is over.
  auto forward = [block = parts_.blocks[index], context](const at::Tensor& x) mutable {
    return block->forward(x, context);
  };
  const bool is_checkpointed = index < checkpointed_.size() && checkpointed_[index];
  return is_checkpointed ? nn::checkpoint(forward, x_BTD) : forward(x_BTD);
}

}  // namespace weft::models
