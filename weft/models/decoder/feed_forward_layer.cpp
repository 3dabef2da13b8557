#include "weft/models/decoder/feed_forward_layer.h"

#include <ATen/ops/silu.h>

#include <memory>
#include <string>
#include <utility>

#include "weft/models/decoder/layer_parts.h"
#include "weft/nn/dense_linear.h"
#include "weft/ops/collectives.h"

namespace weft::models {
namespace {

struct ExpertParts {
  Part gate, up, down;
};

nn::Expert make_expert(const ModelConfig& config, const WeightReader& reader,
                       const ExpertParts& parts, const PartPlace& place, const dist::Group& group) {
  const auto linear = [&](Part part, nn::ShardKind kind) {
    return partial(reader, model_name(config, {part, place.layer, place.expert}), kind, group);
  };
  return nn::Expert(linear(parts.gate, nn::ShardKind::kAllToSharded),
                    linear(parts.up, nn::ShardKind::kAllToSharded),
                    linear(parts.down, nn::ShardKind::kShardedToAll));
}

// One row, which some files keep as a vector.
std::shared_ptr<nn::LinearLike> shared_router(const ModelConfig& config, const WeightReader& reader,
                                              int64_t layer) {
  const std::string base = model_name(config, {Part::kSharedRouter, layer});
  if (!reader.plan().require(base + ".weight").rule.is_vector()) return reader.linear(base, false);
  return std::make_shared<nn::DenseLinearImpl>(reader.vector(base + ".weight").unsqueeze(0));
}

}  // namespace

FeedForwardLayerImpl::FeedForwardLayerImpl(const ModelConfig& config, const WeightReader& reader,
                                           int64_t layer, const dist::Group& group)
    : gate_proj_(register_module(
          "gate_proj", all_to_sharded(reader, model_name(config, {Part::kGate, layer}), group))),
      up_proj_(register_module(
          "up_proj", all_to_sharded(reader, model_name(config, {Part::kUp, layer}), group))),
      down_proj_(register_module(
          "down_proj", sharded_to_all(reader, model_name(config, {Part::kDown, layer}), group))) {}

at::Tensor FeedForwardLayerImpl::forward(const at::Tensor& x_BTD) {
  const at::Tensor shared_BTD = ops::mp_copy(x_BTD, gate_proj_->group());
  const at::Tensor gate_BTf = at::silu(gate_proj_->forward(shared_BTD));
  return down_proj_->forward(gate_BTf * up_proj_->forward(shared_BTD));
}

nn::MixtureOfExperts make_experts(const ModelConfig& config, const WeightReader& reader,
                                  int64_t layer, const dist::Group& group) {
  const ExpertsConfig& experts = config.experts;
  nn::MixtureOfExpertsParts parts;
  parts.router = reader.linear(model_name(config, {Part::kRouter, layer}), false);
  for (int64_t e = 0; e < experts.num_experts; ++e) {
    parts.expert_numbers.push_back(e);
    parts.experts.push_back(make_expert(config, reader,
                                        {Part::kExpertGate, Part::kExpertUp, Part::kExpertDown},
                                        {Part::kExpertGate, layer, e}, group));
  }
  if (experts.shared_ffn_width > 0) {
    parts.shared =
        make_expert(config, reader, {Part::kSharedGate, Part::kSharedUp, Part::kSharedDown},
                    {Part::kSharedGate, layer}, group);
    parts.shared_gate = shared_router(config, reader, layer);
  }
  return nn::MixtureOfExperts(
      std::move(parts), nn::RoutingOptions{experts.experts_per_token, experts.normalizes_weights},
      group);
}

}  // namespace weft::models
