#pragma once

#include <cmath>
#include <cstdint>

#include "weft/cuda/matrix_view.h"

/// What one thread computes, on processors and on GPUs.
#ifdef __CUDACC__
#include <cuda_fp16.h>
#define WEFT_BOTH __host__ __device__ __forceinline__
#else
#define WEFT_BOTH inline
#endif
#ifdef __CUDA_ARCH__
#define WEFT_UNROLL _Pragma("unroll")
#define WEFT_ROLL _Pragma("unroll 1")
#else
#define WEFT_UNROLL
#define WEFT_ROLL
#endif

namespace weft::cuda {

/// One T from an address that is a multiple of its size: one load. nvcc loses what memcpy is told
/// of an address, and would read byte by byte.
template <class T>
WEFT_BOTH T load(const void* from) {
  T value;
#ifdef __CUDA_ARCH__
  if constexpr (sizeof(T) == sizeof(uint4)) {
    const uint4 words = *static_cast<const uint4*>(from);
    __builtin_memcpy(&value, &words, sizeof(T));
  } else {
    value = *static_cast<const T*>(from);
  }
#else
  __builtin_memcpy(&value, __builtin_assume_aligned(from, alignof(T)), sizeof(T));
#endif
  return value;
}

/// Four numbers that one load brings.
struct alignas(16) FourFloats {
  float x[4];
};
/// A unit of float16 or bfloat16 that one load brings.
struct alignas(16) EightHalves {
  uint16_t x[kUnit];
};

/// A bfloat16's value.
WEFT_BOTH float from_bfloat16(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  __builtin_memcpy(&value, &wide, sizeof(value));
  return value;
}

/// A float16's value, subnormal numbers, infinities and NaNs included.
WEFT_BOTH float from_float16(uint16_t bits) {
#ifdef __CUDA_ARCH__
  return __half2float(__ushort_as_half(bits));
#else
  const uint32_t rest = bits & 0x7fffU, sign = (bits & 0x8000U) << 16;
  if (rest < 0x400U) {
    const float small = static_cast<float>(rest) * 0x1p-24F;
    return sign == 0 ? small : -small;
  }
  // Exponents are moved from float16's bias of 15 to float32's of 127.
  const uint32_t exponent = rest >= 0x7c00U ? 0x7f800000U : 112U << 23;
  const uint32_t wide =
      sign | (rest >= 0x7c00U ? exponent | ((rest & 0x3ffU) << 13) : (rest << 13) + exponent);
  float value;
  __builtin_memcpy(&value, &wide, sizeof(value));
  return value;
#endif
}

/// Number `index` of an array that there need not be.
WEFT_BOTH float number_or_zero(const float* numbers, int64_t index) {
  return numbers == nullptr ? 0.F : numbers[index];
}

/// Number `index` of an array.
WEFT_BOTH float number_at(const void* numbers, Dtype kind, int64_t index) {
  if (kind == Dtype::kF32) return static_cast<const float*>(numbers)[index];
  const uint16_t bits = static_cast<const uint16_t*>(numbers)[index];
  return kind == Dtype::kF16 ? from_float16(bits) : from_bfloat16(bits);
}

/// The kUnit codes of kBits each that begin at `from`, lowest bits first.
template <int kBits>
WEFT_BOTH uint64_t packed_unit(const uint8_t* from) {
  if constexpr (kBits == 2) return load<uint16_t>(from);
  if constexpr (kBits == 4) return load<uint32_t>(from);
  if constexpr (kBits == 8) return load<uint64_t>(from);
  uint64_t packed = 0;
  if constexpr (kBits == 6) {
    for (int i = 0; i < 3; ++i) packed |= uint64_t{load<uint16_t>(from + 2 * i)} << (16 * i);
  } else {
    for (int i = 0; i < kBits; ++i) packed |= uint64_t{from[i]} << (8 * i);
  }
  return packed;
}

/// The same for `bits` of 2 to 6 or 8.
WEFT_BOTH uint64_t packed_unit(const uint8_t* from, int32_t bits) {
  switch (bits) {
    case 2:
      return packed_unit<2>(from);
    case 3:
      return packed_unit<3>(from);
    case 4:
      return packed_unit<4>(from);
    case 5:
      return packed_unit<5>(from);
    case 6:
      return packed_unit<6>(from);
    default:
      return packed_unit<8>(from);
  }
}

/// Those codes as numbers.
template <int kBits>
WEFT_BOTH void unpack_unit(const uint8_t* from, float (&q)[kUnit]) {
  const uint64_t packed = packed_unit<kBits>(from);
  for (int i = 0; i < kUnit; ++i) {
    q[i] = static_cast<float>(static_cast<uint32_t>(packed >> (i * kBits)) & ((1U << kBits) - 1));
  }
}

/// kUnit plain numbers from an address that is a multiple of 16.
template <Dtype kNumbers>
WEFT_BOTH void read_unit(const uint8_t* from, float (&v)[kUnit]) {
  if constexpr (kNumbers == Dtype::kF32) {
    const auto low = load<FourFloats>(from), high = load<FourFloats>(from + sizeof(FourFloats));
    for (int i = 0; i < 4; ++i) {
      v[i] = low.x[i];
      v[i + 4] = high.x[i];
    }
  } else {
    const auto halves = load<EightHalves>(from);
    for (int i = 0; i < kUnit; ++i) {
      v[i] = kNumbers == Dtype::kF16 ? from_float16(halves.x[i]) : from_bfloat16(halves.x[i]);
    }
  }
}

/// How a quant group is kept.
struct ScaleOffset {
  float scale;
  float offset;
};
/// That of a unit of a row of codes.
WEFT_BOTH ScaleOffset scale_of(const MatrixView& w, int32_t row, int32_t unit) {
  const int32_t groups = w.in / (w.units_per_group * kUnit);
  const int64_t index = static_cast<int64_t>(row) * groups + unit / w.units_per_group;
  const float scale = number_at(w.scales, w.scale_numbers, index);
  const float offset = w.offsets == nullptr ? -static_cast<float>(1 << (w.bits - 1)) * scale
                                            : number_at(w.offsets, w.scale_numbers, index);
  return {scale, offset};
}

/// Where a unit of a row begins.
template <int kBitsPerNumber>
WEFT_BOTH const uint8_t* unit_at(const MatrixView& w, int32_t row, int32_t unit) {
  const int64_t units = w.in / kUnit;
  return w.data + (row * units + unit) * kBitsPerNumber;
}

/// scale * q + offset with two roundings, as processors have it.
WEFT_BOTH float value_of(float q, const ScaleOffset& group) {
#ifdef __CUDA_ARCH__
  return __fadd_rn(__fmul_rn(group.scale, q), group.offset);
#else
  return group.scale * q + group.offset;
#endif
}

/// The values of a unit of codes of kBits.
template <int kBits>
WEFT_BOTH void code_values(const MatrixView& w, int32_t row, int32_t unit, float (&v)[kUnit]) {
  unpack_unit<kBits>(unit_at<kBits>(w, row, unit), v);
  const ScaleOffset group = scale_of(w, row, unit);
  for (float& each : v) each = value_of(each, group);
}

/// The values of a unit of any matrix.
WEFT_BOTH void unit_values(const MatrixView& w, int32_t row, int32_t unit, float (&v)[kUnit]) {
  switch (w.bits) {
    case 2:
      return code_values<2>(w, row, unit, v);
    case 3:
      return code_values<3>(w, row, unit, v);
    case 4:
      return code_values<4>(w, row, unit, v);
    case 5:
      return code_values<5>(w, row, unit, v);
    case 6:
      return code_values<6>(w, row, unit, v);
    case 8:
      return code_values<8>(w, row, unit, v);
    default:
      break;
  }
  if (w.numbers == Dtype::kF32) {
    return read_unit<Dtype::kF32>(unit_at<32>(w, row, unit), v);
  }
  if (w.numbers == Dtype::kF16) {
    return read_unit<Dtype::kF16>(unit_at<16>(w, row, unit), v);
  }
  read_unit<Dtype::kBF16>(unit_at<16>(w, row, unit), v);
}

/// Threads that share one row of a product: a warp.
inline constexpr int32_t kLanes = 32;

/// silu(gate) * up.
WEFT_BOTH float swiglu(float gate, float up) { return gate / (1 + expf(-gate)) * up; }

/// Element i of a head x [dim or more] that is turned by the angles of its position: pairs are
/// (i, i + dim / 2) and have angle i; elements from `dim` on pass through. Source: Su et al. 2021,
/// arXiv:2104.09864.
WEFT_BOTH float turned(const float* x, const float* cos, const float* sin, int32_t dim, int32_t i) {
  const int32_t half = dim / 2;
  if (i < half) return x[i] * cos[i] - x[i + half] * sin[i];
  if (i < dim) return x[i] * cos[i] + x[i - half] * sin[i];
  return x[i];
}

/// The same where pairs are (2 j, 2 j + 1) and have angle j.
WEFT_BOTH float turned_beside(const float* x, const float* cos, const float* sin, int32_t dim,
                              int32_t i) {
  if (i >= dim) return x[i];
  const float across = i % 2 == 0 ? -x[i + 1] : x[i - 1];
  return x[i] * cos[i / 2] + across * sin[i / 2];
}

}  // namespace weft::cuda
