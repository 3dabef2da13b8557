#pragma once

#include "weft/io/tensor_file.h"
#include "weft/models/config/config.h"
#include "weft/models/load/weight_rules.h"
#include "weft/models/registry.h"

namespace weft::test {

/// How a file's family says that its weights are loaded and cut.
inline models::WeightRules rules_of(const io::TensorFile& file) {
  const models::ModelConfig config = models::read_config(file);
  return models::find_family(config.family).rules(config, file);
}

}  // namespace weft::test
