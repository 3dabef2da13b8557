#pragma once

#include <cstdint>

#include "weft/cuda/kernels/arithmetic.h"

/// What one thread brings of a row of a matrix at a time: a span of columns, in one form for each
/// kind of matrix, so that kernels are compiled for each.
namespace weft::cuda {

/// Words that are read once, from an address that is a multiple of the largest power of two that
/// divides their size, of 16 at most.
template <int kCount>
WEFT_BOTH void load_words(const uint8_t* from, uint32_t (&to)[kCount]) {
#ifdef __CUDA_ARCH__
  if constexpr (kCount % 4 == 0) {
    WEFT_UNROLL for (int i = 0; i < kCount / 4; ++i) {
      const uint4 four = __ldcs(reinterpret_cast<const uint4*>(from) + i);
      to[4 * i] = four.x;
      to[4 * i + 1] = four.y;
      to[4 * i + 2] = four.z;
      to[4 * i + 3] = four.w;
    }
  } else if constexpr (kCount % 2 == 0) {
    WEFT_UNROLL for (int i = 0; i < kCount / 2; ++i) {
      const uint2 two = __ldcs(reinterpret_cast<const uint2*>(from) + i);
      to[2 * i] = two.x;
      to[2 * i + 1] = two.y;
    }
  } else {
    WEFT_UNROLL for (int i = 0; i < kCount; ++i) {
      to[i] = __ldcs(reinterpret_cast<const uint32_t*>(from) + i);
    }
  }
#else
  __builtin_memcpy(to, from, sizeof(to));
#endif
}

/// A float32 of these bits.
WEFT_BOTH float float_of_bits(uint32_t bits) {
  float value;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}

/// Code `index` of packed ones, exactly. It becomes a part of the mantissa of 2^23, as converting
/// integers is slow on GPUs; with a constant index and words in registers, two operations mostly.
template <int kBits, int kCount>
WEFT_BOTH float code_at(const uint32_t (&words)[kCount], int index) {
  constexpr uint32_t kMask = (1U << kBits) - 1;
  constexpr uint32_t kMagic = 0x4b000000U;
  constexpr int kMantissa = 23, kWord = 32, kHalf = 16;
  const int word = index * kBits / kWord, begin = index * kBits % kWord;
  uint32_t from = words[word];
  int shift = begin;
  if (begin + kBits > kWord) {
    from = from >> begin | words[word + 1] << (kWord - begin);
    shift = 0;
  } else if (begin + kBits > kMantissa) {
    from >>= kHalf;
    shift = begin - kHalf;
  }
  const float unit = 1.0F / static_cast<float>(1U << shift);
  return fmaf(float_of_bits((from & (kMask << shift)) | kMagic), unit, -0x1p23F * unit);
}

/// Spans of kSpan plain numbers: those of a unit.
template <Dtype kNumbers>
struct NumberSpan {
  static constexpr int kColumns = kUnit;
  static constexpr bool kHasScale = false;
  static constexpr int kBytes = kNumbers == Dtype::kF32 ? 32 : 16;
  uint32_t words[kBytes / 4];

  WEFT_BOTH void load(const MatrixView& w, int32_t row, int32_t span, int32_t /*group*/) {
    load_words(w.data + (static_cast<int64_t>(row) * (w.in / kColumns) + span) * kBytes, words);
  }
  /// The numbers of a unit of the span.
  WEFT_BOTH void read(int /*unit*/, float (&v)[kUnit]) const {
    WEFT_UNROLL for (int i = 0; i < kUnit; ++i) {
      if constexpr (kNumbers == Dtype::kF32) {
        v[i] = float_of_bits(words[i]);
      } else {
        const uint32_t half = words[i / 2] >> (i % 2 * 16);
        v[i] = kNumbers == Dtype::kBF16 ? float_of_bits(half << 16)
                                        : from_float16(static_cast<uint16_t>(half));
      }
    }
  }
  WEFT_BOTH ScaleOffset scale_offset(const MatrixView& /*w*/) const { return {1, 0}; }
};

/// What a span of codes has of its quant group, as it is kept.
struct RawScale {
  uint32_t scale = 0;
  uint32_t offset = 0;

  WEFT_BOTH void load(const MatrixView& w, int32_t row, int32_t group) {
    const int64_t groups = w.in / (w.units_per_group * kUnit);
    const int64_t index = row * groups + group;
    if (w.scale_numbers == Dtype::kF32) {
      scale = static_cast<const uint32_t*>(w.scales)[index];
      if (w.offsets != nullptr) offset = static_cast<const uint32_t*>(w.offsets)[index];
    } else {
      scale = static_cast<const uint16_t*>(w.scales)[index];
      if (w.offsets != nullptr) offset = static_cast<const uint16_t*>(w.offsets)[index];
    }
  }
  WEFT_BOTH float number(const MatrixView& w, uint32_t bits) const {
    if (w.scale_numbers == Dtype::kF32) return float_of_bits(bits);
    return w.scale_numbers == Dtype::kF16 ? from_float16(static_cast<uint16_t>(bits))
                                          : float_of_bits(bits << 16);
  }
  WEFT_BOTH ScaleOffset get(const MatrixView& w) const {
    const float value = number(w, scale);
    if (w.offsets != nullptr) return {value, number(w, offset)};
    return {value, -static_cast<float>(1 << (w.bits - 1)) * value};
  }
};

/// Spans of kSpan codes of kBits each; quant groups are whole spans.
template <int kBits, int kSpan>
struct CodeSpan {
  static constexpr int kColumns = kSpan;
  static constexpr bool kHasScale = true;
  static constexpr int kWords = kBits * kSpan / 32;
  static_assert(kWords * 32 == kBits * kSpan);
  uint32_t words[kWords];
  RawScale scale;

  WEFT_BOTH void load(const MatrixView& w, int32_t row, int32_t span, int32_t group) {
    load_words(w.data + (static_cast<int64_t>(row) * (w.in / kSpan) + span) * (kWords * 4), words);
    scale.load(w, row, group);
  }
  /// The codes of a unit of the span.
  WEFT_BOTH void read(int unit, float (&v)[kUnit]) const {
    WEFT_UNROLL for (int i = 0; i < kUnit; ++i) v[i] = code_at<kBits>(words, unit * kUnit + i);
  }
  WEFT_BOTH ScaleOffset scale_offset(const MatrixView& w) const { return scale.get(w); }
};

/// Units of codes of any bits, for quant groups that are no whole spans of more.
struct CodeUnit {
  static constexpr int kColumns = kUnit;
  static constexpr bool kHasScale = true;
  uint64_t packed;
  int32_t bits;
  RawScale scale;

  WEFT_BOTH void load(const MatrixView& w, int32_t row, int32_t span, int32_t group) {
    bits = w.bits;
    packed = packed_unit(w.data + (static_cast<int64_t>(row) * (w.in / kUnit) + span) * bits, bits);
    scale.load(w, row, group);
  }
  WEFT_BOTH void read(int /*unit*/, float (&v)[kUnit]) const {
    const uint32_t mask = (1U << bits) - 1;
    WEFT_UNROLL for (int i = 0; i < kUnit; ++i) {
      v[i] = static_cast<float>(static_cast<uint32_t>(packed >> (i * bits)) & mask);
    }
  }
  WEFT_BOTH ScaleOffset scale_offset(const MatrixView& w) const { return scale.get(w); }
};

/// Calls `visit` with an empty span of the form that fits the matrix.
template <class Visit>
void visit_span(const MatrixView& w, const Visit& visit) {
  constexpr int kUnitsOfSpan = 4;
  if (w.bits == 0) {
    if (w.numbers == Dtype::kF32) return visit(NumberSpan<Dtype::kF32>{});
    if (w.numbers == Dtype::kF16) return visit(NumberSpan<Dtype::kF16>{});
    return visit(NumberSpan<Dtype::kBF16>{});
  }
  if (w.units_per_group % kUnitsOfSpan == 0) {
    if (w.bits == 2) return visit(CodeSpan<2, 32>{});
    if (w.bits == 3) return visit(CodeSpan<3, 32>{});
    if (w.bits == 4) return visit(CodeSpan<4, 32>{});
    if (w.bits == 5) return visit(CodeSpan<5, 32>{});
    if (w.bits == 6) return visit(CodeSpan<6, 32>{});
    return visit(CodeSpan<8, 32>{});
  }
  if (w.units_per_group % 2 == 0 && w.bits == 6) return visit(CodeSpan<6, 16>{});
  visit(CodeUnit{});
}

}  // namespace weft::cuda
