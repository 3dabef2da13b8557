#include "weft/quant/affine_reference.h"

#include <algorithm>
#include <cmath>

namespace weft::quant::reference {

uint8_t code_at(std::span<const uint8_t> packed, int64_t bits, int64_t k) {
  const int64_t first_bit = k * bits;
  const size_t byte = static_cast<size_t>(first_bit / 8);
  unsigned window = packed[byte];
  if (byte + 1 < packed.size()) window |= static_cast<unsigned>(packed[byte + 1]) << 8;
  return static_cast<uint8_t>((window >> (first_bit % 8)) & ((1U << bits) - 1));
}

void unpack(std::span<const uint8_t> packed, int64_t bits, std::span<uint8_t> codes) {
  for (size_t k = 0; k < codes.size(); ++k) {
    codes[k] = code_at(packed, bits, static_cast<int64_t>(k));
  }
}

void pack(std::span<const uint8_t> codes, int64_t bits, std::span<uint8_t> packed) {
  constexpr size_t kRun = 8;
  const auto width = static_cast<size_t>(bits);
  for (size_t first = 0; first < codes.size(); first += kRun) {
    const auto run = codes.subspan(first, std::min(kRun, codes.size() - first));
    uint64_t stream = 0;
    for (size_t k = 0; k < run.size(); ++k) stream |= static_cast<uint64_t>(run[k]) << (k * width);
    for (uint8_t& byte : packed.subspan(first / kRun * width, run.size() * width / 8)) {
      byte = static_cast<uint8_t>(stream);
      stream >>= 8;
    }
  }
}

void dequantize(const Row& row, std::span<float> w) {
  for (size_t k = 0; k < w.size(); ++k) {
    const size_t group = k / static_cast<size_t>(row.group_size);
    const float code = code_at(row.packed, row.bits, static_cast<int64_t>(k));
    const float scaled = row.scales[group] * code;
    w[k] = scaled + row.offsets[group];
  }
}

Scale quantize_group(std::span<const float> w, int64_t bits, std::span<uint8_t> codes) {
  constexpr float kLeastScale = 1e-7F;
  const float most = static_cast<float>((1 << bits) - 1);
  const auto [least, largest] = std::ranges::minmax(w);
  const bool is_edge_low = std::abs(least) > std::abs(largest);
  const float edge = is_edge_low ? least : largest;
  float scale = std::max((largest - least) / most, kLeastScale);
  if (!is_edge_low) scale = -scale;
  const float edge_code = std::nearbyint(edge / scale);
  float offset = 0;
  if (edge_code != 0) {
    scale = edge / edge_code;
    offset = edge;
  }
  for (size_t k = 0; k < w.size(); ++k) {
    codes[k] =
        static_cast<uint8_t>(std::clamp(std::nearbyint((w[k] - offset) / scale), 0.0F, most));
  }
  return {scale, offset};
}

float dot(const Row& row, std::span<const float> x) {
  float sum = 0;
  for (size_t k = 0; k < x.size(); ++k) {
    const size_t group = k / static_cast<size_t>(row.group_size);
    const float code = code_at(row.packed, row.bits, static_cast<int64_t>(k));
    const float scaled = row.scales[group] * code;
    sum += (scaled + row.offsets[group]) * x[k];
  }
  return sum;
}

}  // namespace weft::quant::reference
