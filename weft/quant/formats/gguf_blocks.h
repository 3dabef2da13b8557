#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "weft/core/dtype.h"
#include "weft/quant/affine.h"

namespace weft::quant {

/// What a block type of GGUF files becomes; its name and sizes are core::info's.
struct GgufBlockInfo {
  core::Dtype dtype;
  /// Bits and quant group of the AffineTensor.
  int64_t bits;
  int64_t group_size;
  /// No offsets: the AffineTensor is symmetric.
  bool is_symmetric;
  /// Blocks of 256 compute scales from two levels, MXFP4's are powers of two: only float32 holds
  /// these. The others keep float16.
  bool has_float_scales;
  /// Where a block's codes are indices: 16 codes that they stand for, and the bits of an index.
  /// Null elsewhere.
  const uint8_t* table = nullptr;
  int64_t table_bits = 4;

  at::ScalarType scale_dtype() const { return has_float_scales ? at::kFloat : at::kHalf; }
  /// Bits of what a decoded block has: a code, or an index.
  int64_t index_bits() const { return table == nullptr ? bits : table_bits; }
  /// Bytes of a one-level block before its codes: scale and offset.
  int64_t header_bytes() const { return dtype == core::Dtype::kMXFP4 ? 1 : is_symmetric ? 2 : 4; }
};

/// The row of a block type. Throws InternalError for other types.
const GgufBlockInfo& gguf_block_info(core::Dtype dtype);

/// The codes, or indices, of a one-level block of 32, whose scale and offset (2 bytes each) come
/// first, then five-bit kinds' high bits. The low nibble of byte j is element j, the high one
/// element j + 16.
void decode_one_level_codes(const GgufBlockInfo& info, const uint8_t* block, uint8_t* codes);

/// The scale of a block of MXFP4, for codes that count halves.
float mxfp4_scale(const uint8_t* block);

/// Throws ShapeError naming `where` unless `bytes` bytes are blocks of `dtype` of a matrix
/// [out, in] whose rows are whole blocks.
void check_gguf_size(core::Dtype dtype, size_t bytes, int64_t out, int64_t in, const char* where);

/// Converts the blocks of a matrix [out, in], or of a rank's part of one, row after row as in the
/// file. Lossless: dequantized in float32, all values equal those of the blocks (a zero may have
/// another sign). Scales are float16 for Q4_0 to Q8_0 and IQ4_NL, float32 for the others. Elements
/// of MXFP4, twice, are whole numbers of 5 bits.
/// Throws InternalError for a type that is no block, ShapeError unless `in` is whole
/// blocks and `blocks` has as many bytes as that takes. Source: the block layouts of ggml
/// (ggml-common.h) as the PyPI package `gguf` reads them.
AffineTensor from_gguf_blocks(core::Dtype dtype, std::span<const std::byte> blocks, int64_t out,
                              int64_t in);

}  // namespace weft::quant
