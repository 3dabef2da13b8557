#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "weft/dist/group.h"
#include "weft/models/convert/export_output.h"

namespace weft::models {

/// The bits that a matrix of MLX's affine format can have.
inline constexpr std::array<int64_t, 6> kAffineBits = {2, 3, 4, 5, 6, 8};

/// What rounding a matrix to each of kAffineBits loses, 0 where that is not asked: absolute where
/// losses of several matrices that are stored as one add up, else shares.
using BitLosses = std::array<double, kAffineBits.size()>;

/// How losses are measured.
struct FolderMeasure {
  /// Whether losses add up.
  bool is_absolute = false;
  /// Of kAffineBits[first] and more.
  std::function<BitLosses(const ExportOutput& output, size_t first)> losses;
};

/// Sets the bits of the outputs that are quantized anew: the most that all can have while all
/// outputs take at most `limit` bits for each number, and more where a bit saves most. What is one
/// tensor has as many bits everywhere, of a layer's experts one stands for all. The ranks of
/// `group` measure some each; collective, the same on all. Throws ConfigError as forms_within, and
/// for outputs that are not MLX's affine ones.
void set_bits_within(double limit, const FolderMeasure& measure, std::vector<ExportOutput>& outputs,
                     const dist::Group& group);

/// Bits for each number of all outputs together.
double bits_per_weight(const std::vector<ExportOutput>& outputs);

}  // namespace weft::models
