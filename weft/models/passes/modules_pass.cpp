#include "weft/models/passes/modules_pass.h"

#include <utility>

#include "weft/models/passes/options.h"
#include "weft/nn/layers/checkpoint.h"

namespace weft::models {

namespace {

// What attention layers, blocks, embedding and head read of the configuration.
constexpr OptionSet kKnown = {
    Option::kWindows,        Option::kQkvBias,         Option::kOutputBias,
    Option::kMlpBias,        Option::kNormsOfEachHead, Option::kNormsOfAllHeads,
    Option::kNormsAfter,     Option::kPartialRope,     Option::kLayersWithoutRope,
    Option::kEmbeddingScale, Option::kAttentionScale,  Option::kResidualScale,
    Option::kLogitsScale,    Option::kExperts,
};
static_assert(OptionSet::all().without(kKnown).is_empty(),
              "no pass comes after the modules: they have to know every option");

}  // namespace

nn::KvCache ModulesPass::make_cache(const CacheRequest& request) const {
  const ModelConfig& config = parts_.config;
  return nn::KvCache({config.num_layers, request.batch, parts_.num_kv_heads, config.head_dim,
                      request.capacity, request.dtype.value_or(at::kFloat)});
}

at::Tensor ModulesPass::run(const at::Tensor& x_BTD, const PassContext& context) {
  at::Tensor y_BTD = x_BTD;
  for (size_t i = 0; i < parts_.blocks.size(); ++i) {
    const BlockFunction forward = block_function(i, context);
    y_BTD = runner_ ? runner_(static_cast<int64_t>(i), forward, y_BTD) : forward(y_BTD);
  }
  return parts_.last_norm.is_empty() ? y_BTD : parts_.last_norm->forward(y_BTD);
}

BlockFunction ModulesPass::block_function(size_t index, const PassContext& context) const {
  BlockFunction plain = [block = parts_.blocks[index], context](const at::Tensor& x_BTD) mutable {
    return block->forward(x_BTD, context);
  };
  if (index >= checkpointed_.size() || !checkpointed_[index]) return plain;
  return
      [plain = std::move(plain)](const at::Tensor& x_BTD) { return nn::checkpoint(plain, x_BTD); };
}

}  // namespace weft::models
