#pragma once

#include <c10/core/ScalarType.h>

#include <array>
#include <cstdint>

#include "weft/core/dtype.h"
#include "weft/quant/formats/two_level_block.h"
#include "weft/quant/quantizers/group_fit.h"

namespace weft::quant {

/// How a block type of GGUF stores its quant groups, or a folder those of one matrix, each of which
/// is then a block.
struct BlockForm {
  /// Of GGUF.
  core::Dtype dtype = core::Dtype::kF32;
  int block = 32;
  int group = 32;
  CodePoints codes = {};
  bool has_offsets = false;
  /// Whole numbers that a group's scale may be, in units of the block's; both 0: there is one
  /// group, whose scale is the block's.
  int least_scale = 0;
  int most_scale = 0;
  /// The same of offsets, which are subtracted.
  int most_offset = 0;
  /// What scale and offset of one level are kept as.
  c10::ScalarType number_type = c10::ScalarType::Half;
  /// An offset is -scale times a whole number, which is one of the codes.
  bool has_zero_points = false;

  int num_groups() const { return block / group; }
  bool has_two_levels() const { return most_scale > 0; }
};

/// The form of a type that weft quantizes to, or null.
const BlockForm* find_block_form(core::Dtype dtype);

/// The nearest number that float16, bfloat16 or float32 has.
float as_stored(c10::ScalarType type, float number);

/// A block as numbers: element = scale * scales[g] * point + offset * offsets[g]. Types of one
/// level have 1 in scales and offsets. `scale` and `offset` are numbers of the form's type.
struct FittedBlock {
  float scale = 0;
  float offset = 0;
  std::array<int, 16> scales = {};
  std::array<int, 16> offsets = {};
  std::array<uint8_t, kTwoLevelElements> codes = {};

  float group_scale(int group) const {
    return scale * static_cast<float>(scales[static_cast<size_t>(group)]);
  }
  float group_offset(int group) const {
    return offset * static_cast<float>(offsets[static_cast<size_t>(group)]);
  }
};

/// Writes a block's bytes: what the decoders of formats/gguf_blocks.h, gguf_k_blocks.h and
/// gguf_i_blocks.h read. Source: the block layouts of ggml (ggml-common.h).
void encode_block(const BlockForm& form, const FittedBlock& block, uint8_t* bytes);

}  // namespace weft::quant
