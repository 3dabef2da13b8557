#include "weft/models/decoder/feed_forward_layer.h"

#include <ATen/Parallel.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "weft/models/decoder/layer_parts.h"
#include "weft/models/decoder/weight_table.h"
#include "weft/nn/layers/swiglu.h"
#include "weft/nn/linear/fused_linear.h"

namespace weft::models {
namespace {

struct ExpertParts {
  Part gate, up, down;
};

nn::Expert make_expert(const ModelConfig& config, const WeightSource& source,
                       const ExpertParts& parts, const PartPlace& place, const dist::Group& group) {
  const auto linear = [&](Part part, nn::ShardKind kind) {
    return partial(source, model_name(config, {part, place.layer, place.expert}), kind, group);
  };
  const auto own_name = [&](Part part) { return module_name(config, {part, place.layer}); };
  return nn::Expert(linear(parts.gate, nn::ShardKind::kAllToSharded),
                    linear(parts.up, nn::ShardKind::kAllToSharded),
                    linear(parts.down, nn::ShardKind::kShardedToAll),
                    nn::ExpertNames{own_name(parts.gate), own_name(parts.up), own_name(parts.down)},
                    config.gating);
}

// Those of these numbers, several at a time where the source serves threads: one is too small for
// all threads to read and put in order together.
std::vector<nn::Expert> make_held(const ModelConfig& config, const WeightSource& source,
                                  int64_t layer, const std::vector<int64_t>& numbers,
                                  const dist::Group& group) {
  std::vector<nn::Expert> experts(numbers.size(), nn::Expert(nullptr));
  const auto make = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto at = static_cast<size_t>(i);
      experts[at] =
          make_expert(config, source, {Part::kExpertGate, Part::kExpertUp, Part::kExpertDown},
                      {Part::kExpertGate, layer, numbers[at]}, group);
    }
  };
  const auto count = static_cast<int64_t>(numbers.size());
  if (source.serves_threads()) {
    at::parallel_for(0, count, 1, make);
  } else {
    make(0, count);
  }
  return experts;
}

// Whether this rank holds none of it, which happens where ranks share experts as wholes.
bool is_elsewhere(const ModelConfig& config, const WeightSource& source, const PartPlace& place) {
  const shard::Layout layout = source.layout(model_name(config, place));
  return layout.of(source.rank()).empty();
}

}  // namespace

FeedForwardLayerImpl::FeedForwardLayerImpl(const ModelConfig& config, const WeightSource& source,
                                           int64_t layer, const dist::Group& group)
    : gating_(config.gating),
      gate_proj_(
          register_module(module_name(config, {Part::kGate, layer}),
                          all_to_sharded(source, model_name(config, {Part::kGate, layer}), group))),
      up_proj_(
          register_module(module_name(config, {Part::kUp, layer}),
                          all_to_sharded(source, model_name(config, {Part::kUp, layer}), group))),
      down_proj_(register_module(
          module_name(config, {Part::kDown, layer}),
          sharded_to_all(source, model_name(config, {Part::kDown, layer}), group))) {}

at::Tensor FeedForwardLayerImpl::forward(const at::Tensor& x_BTD, const nn::RowCounts& rows) {
  const auto projected = nn::linears_of_shared({gate_proj_->inner(), up_proj_->inner()}, x_BTD,
                                               gate_proj_->group(), rows);
  return down_proj_->forward_rows(nn::gated(projected[0], projected[1], gating_), rows);
}

nn::MixtureOfExperts make_experts(const ModelConfig& config, const WeightSource& source,
                                  int64_t layer, const dist::Group& group) {
  const ExpertsConfig& experts = config.experts;
  nn::MixtureOfExpertsParts parts;
  parts.router = source.linear(model_name(config, {Part::kRouter, layer}), true);
  parts.router_name = module_name(config, {Part::kRouter, layer});
  for (int64_t e = 0; e < experts.num_experts; ++e) {
    if (!is_elsewhere(config, source, {Part::kExpertGate, layer, e})) {
      parts.expert_numbers.push_back(e);
    }
  }
  parts.experts = make_held(config, source, layer, parts.expert_numbers, group);
  if (experts.shared_ffn_width > 0) {
    parts.shared =
        make_expert(config, source, {Part::kSharedGate, Part::kSharedUp, Part::kSharedDown},
                    {Part::kSharedGate, layer}, group);
    if (experts.gates_shared) {
      parts.shared_gate = source.linear(model_name(config, {Part::kSharedRouter, layer}), false);
    }
  }
  parts.ordered.features = source.ordered_sum(std::string(kExpertFfnSplit), group);
  parts.ordered.experts = source.ordered_experts(experts.num_experts, group);
  if (experts.shared_ffn_width > 0) {
    parts.ordered.shared_features = source.ordered_sum(std::string(kSharedFfnSplit), group);
  }
  if (experts.has_choice_bias) {
    parts.choice_bias =
        source.vector(model_name(config, {Part::kChoiceBias, layer}) + ".weight").to(at::kFloat);
  }
  if (experts.is_beside_ffn) {
    parts.expert_factors =
        source.vector(model_name(config, {Part::kExpertFactors, layer}) + ".weight").to(at::kFloat);
  }
  nn::RoutingOptions routing;
  routing.top_k = experts.experts_per_token;
  routing.normalize = experts.normalizes_weights;
  routing.has_sigmoids = experts.scores == RouterScores::kSigmoid;
  routing.num_groups = experts.num_groups;
  routing.groups_per_token = experts.groups_per_token;
  routing.best_of_group = experts.best_of_group;
  routing.scale = experts.weights_scale;
  return nn::MixtureOfExperts(std::move(parts), routing, group);
}

}  // namespace weft::models
