#include "weft/models/load/agreed_model.h"

#include <ios>
#include <utility>

#include "weft/core/error.h"
#include "weft/models/registry.h"

namespace weft::models {

AgreedModel::AgreedModel(ModelConfig config, LoadPlan plan, const dist::Group& group,
                         const Terms& terms)
    : config_(std::move(config)), plan_(std::move(plan)), group_(group) {
  group_.check_agreement(terms.what,
                         core::join(terms.told, ", plan hash ", std::hex, plan_.params().hash()));
}

std::shared_ptr<CausalLM> AgreedModel::make(const WeightSource& source, const StageLayers& layers,
                                            bool is_trainable) const {
  core::check<core::ConfigError>(
      !is_trainable || !config_.experts.has_choice_bias, "models: ", core::quote(config_.family),
      " to train: the bias by which its experts are chosen has no gradient, and nothing here "
      "adjusts it; train adapters");
  core::check<core::ConfigError>(
      !is_trainable || !config_.experts.is_beside_ffn, "models: ", core::quote(config_.family),
      " to train: the factors of its routers and experts have no gradient; train adapters");
  auto model = find_family(config_.family)
                   .make(config_, source, make_stage(layers, config_.num_layers), group_);
  model->train(is_trainable);
  if (is_trainable) {
    for (at::Tensor& parameter : model->parameters()) parameter.set_requires_grad(true);
  }
  return model;
}

}  // namespace weft::models
