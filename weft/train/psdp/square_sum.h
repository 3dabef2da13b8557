#pragma once

#include <span>

namespace weft::train {

/// Sum of the squares in float64, in one order for one length: the same bits for the same numbers.
double square_sum(std::span<const float> values);

}  // namespace weft::train
