#pragma once

#include <cstdint>
#include <span>

/// The affine format in plain C++, one row at a time and nothing clever: what the kernels and the
/// file formats are compared with.
namespace weft::quant::reference {

/// One matrix row as the format keeps it, already widened to float32.
struct Row {
  int64_t bits = 0;
  int64_t group_size = 0;
  /// in * bits / 8 bytes, lowest bit first.
  std::span<const uint8_t> packed;
  /// One per quant group.
  std::span<const float> scales;
  std::span<const float> offsets;
};

/// How one quant group is kept: w = scale * q + offset.
struct Scale {
  float scale = 0;
  float offset = 0;
};

/// Element `k` of a row's bit stream.
uint8_t code_at(std::span<const uint8_t> packed, int64_t bits, int64_t k);

/// All codes of a row. packed: codes.size() * bits / 8 bytes.
void unpack(std::span<const uint8_t> packed, int64_t bits, std::span<uint8_t> codes);

/// The inverse of unpack. codes: each below 2^bits. packed: codes.size() * bits / 8 bytes.
void pack(std::span<const uint8_t> codes, int64_t bits, std::span<uint8_t> packed);

/// w: [in] float32, scale * q rounded to float32, then + offset rounded again.
void dequantize(const Row& row, std::span<float> w);

/// Quantizes one quant group. w: finite. codes: as many as w.
/// Source: MLX's affine quantizer: the scale spans the range of the group, the edge of larger
/// magnitude becomes exact, the scale is then adjusted so that zero is a code; round half to even.
Scale quantize_group(std::span<const float> w, int64_t bits, std::span<uint8_t> codes);

/// Dot product of a row and x [in], in float32, first element first.
float dot(const Row& row, std::span<const float> x);

}  // namespace weft::quant::reference
