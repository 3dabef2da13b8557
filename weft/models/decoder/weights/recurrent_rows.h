#pragma once

#include <span>

#include "weft/models/decoder/weight_table.h"

namespace weft::models {

/// The rows of layers that only families with recurrent layers have, by names of their own.
std::span<const WeightRow> recurrent_rows();

}  // namespace weft::models
