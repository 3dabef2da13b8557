#pragma once

#include <cstdint>
#include <cstring>

#include "weft/quant/kernels/kernel.h"

/// From packed rows to codes, scales and values, the same for every instruction set. V is the
/// instruction set, as in row_loops.h, so that nothing here is shared between files.
namespace weft::quant::kernels {

/// The values of E2M1 codes.
constexpr float kE2m1Values[16] = {0,     0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                                   -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};

/// The values of E4M3 codes.
template <class V>
struct E4m3 {
  struct Values {
    float of[256];
  };
  static constexpr float value(int code) {
    const int exponent = code >> 3 & 15;
    if ((code & 127) == 127) return __builtin_nanf("");
    float magnitude = static_cast<float>((exponent == 0 ? 0 : 8) + (code & 7)) / 512;
    for (int e = 1; e < exponent; ++e) magnitude *= 2;
    return code < 128 ? magnitude : -magnitude;
  }
  static constexpr Values make() {
    Values values{};
    for (int code = 0; code < 256; ++code) values.of[code] = value(code);
    return values;
  }
  static constexpr Values kValues = make();
};

/// Moves eight codes of kBits bits, packed in the low bits, to one byte each: halves, quarters and
/// eighths are moved apart in turn.
template <class V, int kBits>
uint64_t spread_codes(uint64_t packed) {
  constexpr uint64_t kOne = (1U << kBits) - 1;
  constexpr uint64_t kTwo = kOne | kOne << kBits;
  constexpr uint64_t kFour = kTwo | kTwo << (2 * kBits);
  constexpr int kGap = 8 - kBits;
  constexpr uint64_t kTwos = kTwo | kTwo << 32;
  constexpr uint64_t kOnes = kOne | kOne << 16 | kOne << 32 | kOne << 48;
  packed = (packed & kFour) | ((packed & (kFour << (4 * kBits))) << (4 * kGap));
  packed = (packed & kTwos) | ((packed & (kTwos << (2 * kBits))) << (2 * kGap));
  return (packed & kOnes) | ((packed & (kOnes << kBits)) << kGap);
}

/// The kBits bytes at `from`, in parts that the processor loads whole.
template <class V, int kBits>
uint64_t load_eight_codes(const uint8_t* from) {
  constexpr int kWhole = kBits >= 4 ? 4 : 2;
  uint32_t whole = 0;
  std::memcpy(&whole, from, kWhole);
  uint16_t rest = 0;
  if constexpr (kBits - kWhole == 2) std::memcpy(&rest, from + kWhole, 2);
  if constexpr (kBits - kWhole == 1) rest = from[kWhole];
  return whole | static_cast<uint64_t>(rest) << (8 * kWhole);
}

/// `count` codes to one byte each. count * kBits must be whole bytes.
template <class V, int kBits>
void unpack_codes(const uint8_t* packed, int64_t count, uint8_t* codes) {
  int64_t k = 0;
  for (; k + 8 <= count; k += 8) {
    const uint64_t eight =
        spread_codes<V, kBits>(load_eight_codes<V, kBits>(packed + k / 8 * kBits));
    std::memcpy(codes + k, &eight, 8);
  }
  if (k < count) {
    uint64_t rest = 0;
    std::memcpy(&rest, packed + k / 8 * kBits, static_cast<size_t>((count - k) * kBits / 8));
    rest = spread_codes<V, kBits>(rest);
    std::memcpy(codes + k, &rest, static_cast<size_t>(count - k));
  }
}

/// The codes of a row, one byte each: the packed bytes themselves or unpacked into `buffer`.
template <class V>
const uint8_t* row_codes(const Weights& w, int64_t row, uint8_t* buffer) {
  const uint8_t* packed = w.packed + row * w.row_bytes();
  switch (w.bits) {
    case 2:
      unpack_codes<V, 2>(packed, w.in_features, buffer);
      return buffer;
    case 3:
      unpack_codes<V, 3>(packed, w.in_features, buffer);
      return buffer;
    case 4:
      unpack_codes<V, 4>(packed, w.in_features, buffer);
      return buffer;
    case 5:
      unpack_codes<V, 5>(packed, w.in_features, buffer);
      return buffer;
    case 6:
      unpack_codes<V, 6>(packed, w.in_features, buffer);
      return buffer;
    default:
      return packed;
  }
}

/// Powers of two; 2^-127 has no exponent of its own in float32.
template <class V>
void widen_exponents(const uint8_t* exponents, int64_t count, float* wide) {
  for (int64_t i = 0; i < count; ++i) {
    uint32_t bits = static_cast<uint32_t>(exponents[i]) << 23;
    if (exponents[i] == 0) bits = 0x00400000;
    if (exponents[i] == 255) bits = 0x7FC00000;
    std::memcpy(wide + i, &bits, sizeof(bits));
  }
}

/// `count` numbers from element `first` of `source`, as float32.
template <class V>
void widen(const void* source, core::Dtype type, int64_t first, int64_t count, float* wide) {
  const auto* byte = static_cast<const uint8_t*>(source) + first;
  const auto* half = static_cast<const uint16_t*>(source) + first;
  switch (type) {
    case core::Dtype::kF32:
      std::memcpy(wide, static_cast<const float*>(source) + first,
                  static_cast<size_t>(count) * sizeof(float));
      break;
    case core::Dtype::kF16:
      V::widen_half(half, count, wide);
      break;
    case core::Dtype::kBF16:
      for (int64_t i = 0; i < count; ++i) {
        const uint32_t bits = static_cast<uint32_t>(half[i]) << 16;
        std::memcpy(wide + i, &bits, sizeof(bits));
      }
      break;
    case core::Dtype::kF8E8M0:
      widen_exponents<V>(byte, count, wide);
      break;
    case core::Dtype::kF8E4M3:
      for (int64_t i = 0; i < count; ++i) wide[i] = E4m3<V>::kValues.of[byte[i]];
      break;
    default:
      // Matrices are checked before a kernel gets them.
      __builtin_trap();
  }
}

/// Scales and offsets of a row, num_groups of each.
template <class V>
void widen_scales(const Weights& w, int64_t row, float* scales, float* offsets) {
  const int64_t groups = w.num_groups;
  widen<V>(w.scales, w.scale_type, row * groups, groups, scales);
  if (w.offsets != nullptr) {
    widen<V>(w.offsets, w.scale_type, row * groups, groups, offsets);
    return;
  }
  const float middle =
      w.element == Element::kInteger ? -static_cast<float>(1 << (w.bits - 1)) : 0.0F;
  for (int64_t g = 0; g < groups; ++g) offsets[g] = middle * scales[g];
}

/// One row, in the order of the columns, rounded as the reference rounds.
template <class V>
void dequantize_row(const Weights& w, const uint8_t* codes, const float* scales,
                    const float* offsets, float* values) {
  const float* elements = w.element == Element::kE2M1 ? kE2m1Values : E4m3<V>::kValues.of;
  for (int64_t g = 0; g < w.num_groups; ++g) {
    const float scale = scales[g];
    const float offset = offsets[g];
    const int64_t end = (g + 1) * w.group_size;
    if (w.element == Element::kInteger) {
      for (int64_t k = end - w.group_size; k < end; ++k) {
        values[k] = scale * static_cast<float>(codes[k]) + offset;
      }
    } else {
      for (int64_t k = end - w.group_size; k < end; ++k) values[k] = scale * elements[codes[k]];
    }
  }
}

}  // namespace weft::quant::kernels
