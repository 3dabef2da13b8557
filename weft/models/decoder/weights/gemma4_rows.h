#pragma once

#include <cstdint>
#include <span>

#include "weft/models/decoder/weight_table.h"

namespace weft::models {

/// The rows of layers that only Gemma 4 has: heads of layers without a window, feed-forward layers
/// of those that reuse keys, experts beside feed-forward layers, layers' own inputs and factors.
std::span<const WeightRow> gemma4_rows();
/// Those that are of no layer.
std::span<const WeightRow> gemma4_model_rows();
/// Elements along a dim that only these rows have.
int64_t gemma4_size_of(const ModelConfig& config, WeightDim dim);

}  // namespace weft::models
