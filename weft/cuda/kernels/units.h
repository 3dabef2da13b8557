#pragma once

#include "weft/cuda/kernels/mma.h"
#include "weft/cuda/kernels/spans.h"

/// Units of a matrix's rows on their way to tensor cores, in one form for each kind of matrix. A
/// form is loaded as it lies in memory and split later, so that nothing waits for memory before it
/// must. Without values it stands for zeros.
namespace weft::cuda {

/// A unit of plain numbers.
template <Dtype kNumbers>
struct NumberUnit {
  /// Parts that hold the numbers exactly.
  static constexpr int kExactParts = kNumbers == Dtype::kBF16 ? 1 : kNumbers == Dtype::kF16 ? 2 : 3;
  static constexpr int kBytes = kNumbers == Dtype::kF32 ? 32 : 16;
  HalfUnit words[kBytes / 16] = {};

  WEFT_BOTH void load(const MatrixView& w, int32_t row, int32_t unit, int32_t /*group*/) {
    const uint8_t* from = unit_at<kBytes>(w, row, unit);
    WEFT_UNROLL for (int i = 0; i < kBytes / 16; ++i) {
      words[i] = cuda::load<HalfUnit>(from + i * 16);
    }
  }
  template <int kParts>
  WEFT_BOTH void split(const MatrixView& /*w*/, HalfUnit (&parts)[kParts]) const {
    if constexpr (kNumbers == Dtype::kBF16) {
      static_assert(kParts == 1);
      parts[0] = words[0];
    } else {
      float v[kUnit];
      WEFT_UNROLL for (int i = 0; i < kUnit; ++i) {
        if constexpr (kNumbers == Dtype::kF32) {
          v[i] = float_of_bits(words[i / 4].pairs[i % 4]);
        } else {
          v[i] = from_float16(static_cast<uint16_t>(words[0].pairs[i / 2] >> (i % 2 * 16)));
        }
      }
      split_unit(v, parts);
    }
  }
};

/// A unit of codes of kBits each.
template <int kBits>
struct PackedUnit {
  static constexpr int kExactParts = 3;
  uint64_t packed = 0;
  RawScale scale;

  WEFT_BOTH void load(const MatrixView& w, int32_t row, int32_t unit, int32_t group) {
    packed = packed_unit<kBits>(unit_at<kBits>(w, row, unit));
    scale.load(w, row, group);
  }
  template <int kParts>
  WEFT_BOTH void split(const MatrixView& w, HalfUnit (&parts)[kParts]) const {
    const uint32_t words[2] = {static_cast<uint32_t>(packed), static_cast<uint32_t>(packed >> 32)};
    const ScaleOffset group = scale.get(w);
    float v[kUnit];
    WEFT_UNROLL for (int i = 0; i < kUnit; ++i) {
      v[i] = fmaf(group.scale, code_at<kBits>(words, i), group.offset);
    }
    split_unit(v, parts);
  }
};

/// Calls `visit` with an empty unit of the form that fits the matrix.
template <class Visit>
void visit_unit(const MatrixView& w, const Visit& visit) {
  switch (w.bits) {
    case 2:
      return visit(PackedUnit<2>{});
    case 3:
      return visit(PackedUnit<3>{});
    case 4:
      return visit(PackedUnit<4>{});
    case 5:
      return visit(PackedUnit<5>{});
    case 6:
      return visit(PackedUnit<6>{});
    case 8:
      return visit(PackedUnit<8>{});
    default:
      break;
  }
  if (w.numbers == Dtype::kF32) return visit(NumberUnit<Dtype::kF32>{});
  if (w.numbers == Dtype::kF16) return visit(NumberUnit<Dtype::kF16>{});
  visit(NumberUnit<Dtype::kBF16>{});
}

}  // namespace weft::cuda
