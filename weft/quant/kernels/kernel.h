#pragma once

#include <cstddef>
#include <cstdint>

#include "weft/core/dtype.h"

/// The inner loops of quantized matmul, one table row per instruction set. Kernel files are
/// compiled for machines that may not run them, so they use nothing that the linker could share
/// with other files: no standard containers, and no inline functions but templates on a type of
/// their own.
namespace weft::quant::kernels {

/// What a code means: itself, or a float of 4 or 8 bits (see microscaled.h).
enum class Element { kInteger, kE2M1, kE4M3 };

/// A quantized matrix as raw memory: scale * element + offset. `offsets` null: symmetric integers,
/// or floats, which have none.
struct Weights {
  const uint8_t* packed = nullptr;
  const void* scales = nullptr;
  const void* offsets = nullptr;
  Element element = Element::kInteger;
  /// Of scales and offsets: F32, F16, BF16, F8_E8M0 or F8_E4M3.
  core::Dtype scale_type = core::Dtype::kF32;
  int64_t bits = 0;
  int64_t group_size = 0;
  int64_t in_features = 0;
  /// Quant groups per row.
  int64_t num_groups = 0;

  [[gnu::always_inline]] int64_t row_bytes() const { return in_features * bits / 8; }
};

/// Rows [first, first + count) of a matrix.
struct RowRange {
  int64_t first = 0;
  int64_t count = 0;
};

/// Rows of a matrix as float32, `stride` floats apart; a multiple of kPadding, zero after the
/// matrix's own columns.
struct Tile {
  float* data = nullptr;
  int64_t stride = 0;
  RowRange rows;
};

/// tokens x: row t at data + t * stride.
struct Inputs {
  const float* data = nullptr;
  int64_t stride = 0;
  int64_t tokens = 0;
};

/// y[t, row] at data + t * stride + row.
struct Outputs {
  float* data = nullptr;
  int64_t stride = 0;
};

/// What a Tile's stride and the stride of its Inputs are a multiple of, in floats.
constexpr int64_t kPadding = 16;
/// Most rows that a kernel works on at once.
constexpr int64_t kMaxRows = 4;

/// One instruction set.
struct Kernel {
  const char* name;
  /// The most tokens for which `multiply` is faster than fill and multiply_tile.
  int64_t fused_tokens;
  /// Whether this machine can run it.
  bool (*runs_here)();
  /// Whether `multiply` takes this format; if not, fill and multiply_tile do.
  bool (*fuses)(const Weights& w);
  /// Copies one token x [in_features] into the order of columns that this kernel unpacks to.
  void (*order)(const Weights& w, const float* x, float* ordered);
  /// y = x w^T for some rows, unpacking in registers: for few tokens. x: ordered.
  /// scratch: scratch_bytes(w).
  void (*multiply)(const Weights& w, const RowRange& rows, const Inputs& x, const Outputs& y,
                   std::byte* scratch);
  /// w's rows `tile.rows` into `tile`, the same bits as the reference. scratch: scratch_bytes(w).
  void (*dequantize)(const Weights& w, const Tile& tile, std::byte* scratch);
  /// As dequantize but in this kernel's order of columns and within float32 rounding: for
  /// multiply_tile.
  void (*fill)(const Weights& w, const Tile& tile, std::byte* scratch);
  /// y = x tile^T: for many tokens. x: in the tile's order, zero after the matrix's own columns.
  void (*multiply_tile)(const Tile& tile, const Inputs& x, const Outputs& y);
  /// Whether products beside these may use tile registers (core/amx.h).
  bool uses_tiles = false;
};

/// Bytes that a kernel may use beside its results: float32 scales and offsets of kMaxRows rows, or
/// those and the unpacked codes of one row.
[[gnu::always_inline]] inline int64_t scratch_bytes(const Weights& w) {
  return kMaxRows * 2 * static_cast<int64_t>(sizeof(float)) * w.num_groups + w.in_features;
}

/// Every instruction set that this build knows, fastest first; the last runs everywhere.
extern const Kernel kAmxKernel;
extern const Kernel kAvx512Kernel;
extern const Kernel kAvx2Kernel;
extern const Kernel kPlainKernel;

}  // namespace weft::quant::kernels
