#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

namespace weft::quant {

/// Scales [out, groups] as products of small whole numbers and a number that neighbours share:
/// scale[row][i] is shared[row][i / run] * codes[row][i] in float32, exactly.
struct TwoLevelScales {
  /// int8 [out, groups].
  at::Tensor codes;
  /// float32 [out, groups / run], rounded up.
  at::Tensor shared;
};

/// Finds such factors of `scales` (floating, two dims), of runs of `run` neighbours of a row: what
/// they share is the greatest common divisor. Scales of GGUF's K-quants were made as such products
/// and stay so when they are cut between runs. nullopt if a run has no such factors.
std::optional<TwoLevelScales> find_two_levels(const at::Tensor& scales, int64_t run);

}  // namespace weft::quant
