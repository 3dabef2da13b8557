#pragma once

#include <memory>
#include <string>

#include "weft/dist/group.h"
#include "weft/models/load/stage.h"
#include "weft/models/load/weight_rules.h"
#include "weft/models/load/weight_source.h"
#include "weft/models/model.h"

namespace weft::models {

/// How the models of a family are cut and built. What distinguishes their files is a row of
/// families().
struct Family {
  /// The weights in `file` and how they are cut. Pure: headers only.
  WeightRules (*rules)(const ModelConfig& config, const io::TensorFile& file);
  /// Builds this rank's part of a stage.
  std::shared_ptr<CausalLM> (*make)(const ModelConfig& config, const WeightSource& source,
                                    const Stage& stage, const dist::Group& group);
};

/// By ModelConfig::family. Throws ConfigError that lists the known families.
const Family& find_family(const std::string& name);

}  // namespace weft::models
