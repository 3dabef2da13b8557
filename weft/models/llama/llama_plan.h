#pragma once

#include "weft/io/tensor_file.h"
#include "weft/models/config.h"
#include "weft/models/plan.h"

namespace weft::models {

/// Cuts a Llama for rank `rank` of `n`: q, k, v, gate, up and the vocabulary by rows, o and down by
/// columns, norms whole. Names and row order follow the kind of file.
/// Throws ConfigError if a rank would hold nothing of heads, ffn or vocabulary.
LoadPlan plan_llama(const ModelConfig& config, const io::TensorFile& file, int64_t n, int64_t rank);

}  // namespace weft::models
