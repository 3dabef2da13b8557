#pragma once

#include "weft/io/tensor_file.h"
#include "weft/models/config.h"
#include "weft/models/weight_rules.h"

namespace weft::models {

/// How a Llama is cut: q, k, v, gate, up and the vocabulary by rows, o and down by columns, norms
/// whole. Names and row order follow the kind of file.
WeightRules llama_rules(const ModelConfig& config, const io::TensorFile& file);

}  // namespace weft::models
