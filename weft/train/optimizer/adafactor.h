#pragma once

#include <memory>
#include <vector>

#include "weft/train/optimizer/optimizer.h"

namespace weft::train {

/// Adafactor of parameters that are cut in any way: the sums over a matrix's rows and columns are
/// the whole's, by one all-reduce of them all per step, and one of a number per parameter. State of
/// a matrix are two vectors of the whole ("row", "column"), of a vector a value for each element
/// ("exp_avg_sq"). Tensors on the CPU. Collective over `group`. Throws ConfigError for options out
/// of range and tensors elsewhere.
std::unique_ptr<Optimizer> make_adafactor(const AdafactorOptions& options,
                                          std::vector<OwnedSlice> slices, const dist::Group& group);

}  // namespace weft::train
