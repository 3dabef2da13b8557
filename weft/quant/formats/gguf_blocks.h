#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "weft/quant/affine.h"

namespace weft::quant {

/// The block formats of GGUF files that are affine per quant group.
enum class GgufBlock { kQ4_0, kQ4_1, kQ5_0, kQ5_1, kQ8_0, kQ2K, kQ3K, kQ4K, kQ5K, kQ6K };

/// What a block format holds and what it becomes.
struct GgufBlockInfo {
  const char* name;
  /// Neighbouring columns per block.
  int64_t elements;
  /// Bytes per block in the file.
  int64_t bytes;
  /// Bits and quant group of the AffineTensor.
  int64_t bits;
  int64_t group_size;
  /// No offsets: the AffineTensor is symmetric.
  bool is_symmetric;
  /// K-quants compute scales from two levels, which only float32 holds; the others keep float16.
  bool is_two_level;
};

/// The properties of `kind`.
const GgufBlockInfo& gguf_block_info(GgufBlock kind);

/// Converts the blocks of a matrix [out, in], or of a rank's part of one, row after row as in the
/// file. Lossless: dequantized in float32, all values equal those of the blocks (a zero may have
/// another sign). Scales are float16 for Q4_0 to Q8_0 and float32 for K-quants.
/// Throws ShapeError unless `in` is whole blocks and `blocks` has as many bytes as that takes.
/// Source: the block layouts of ggml (ggml-common.h) as the PyPI package `gguf` reads them.
AffineTensor from_gguf_blocks(GgufBlock kind, std::span<const std::byte> blocks, int64_t out,
                              int64_t in);

}  // namespace weft::quant
