#pragma once

#include <memory>
#include <string>

#include "weft/dist/group.h"
#include "weft/models/config/config.h"
#include "weft/models/load/plan.h"
#include "weft/models/load/stage.h"
#include "weft/models/load/weight_source.h"
#include "weft/models/model.h"

namespace weft::models {

/// A model that the ranks of a group agree on, before this rank's layers are made: planned from
/// headers for all ranks, with no weight read or drawn. Every way to a model goes through it.
class AgreedModel {
 public:
  /// Says in messages what the ranks agree on, and what beside the plan must be the same.
  struct Terms {
    std::string what;
    std::string told;
  };

  /// Throws CommError on all ranks if their terms or plans differ. Collective over `group`.
  AgreedModel(ModelConfig config, LoadPlan plan, const dist::Group& group, const Terms& terms);

  const ModelConfig& config() const { return config_; }
  const LoadPlan& plan() const { return plan_; }
  const dist::Group& group() const { return group_; }

  /// This rank's layers of a stage, with their weights from `source`. With `is_trainable` all
  /// floating weights need gradients (those held quantized are no parameters), and the model is in
  /// training mode, else in evaluation mode. Throws ConfigError as make_stage. Every rank calls it.
  std::shared_ptr<CausalLM> make(const WeightSource& source, const StageLayers& layers,
                                 bool is_trainable) const;

 private:
  ModelConfig config_;
  LoadPlan plan_;
  dist::Group group_;
};

}  // namespace weft::models
