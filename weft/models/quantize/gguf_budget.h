#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <vector>

#include "weft/core/dtype.h"
#include "weft/dist/group.h"
#include "weft/models/convert/gguf_outputs.h"
#include "weft/models/convert/gguf_rows.h"
#include "weft/models/quantize/importance.h"

namespace weft::models {

/// Types for the matrices among `outputs`, by their index, so that all outputs together take at
/// most `bits` bits per number and what is lost is little. Each matrix is quantized to each type
/// that fits its rows, from a sample of them. If `importance` has products of all these matrices,
/// a loss is how far predictions move (collect.h), else the share of the square of what the matrix
/// returns that the rounding changes, inputs taken as uncorrelated. Types are then raised where a
/// bit saves most. Outputs for which `is_fixed` holds keep their type. The ranks of `group` measure
/// some matrices each; collective, the same on all. Throws ConfigError for a budget that even the
/// smallest types exceed, naming the least.
std::map<size_t, core::Dtype> types_within(double bits, const Importance& importance,
                                           const GgufRows& rows,
                                           const std::vector<GgufOutput>& outputs,
                                           const std::function<bool(const GgufOutput&)>& is_fixed,
                                           const dist::Group& group);

}  // namespace weft::models
