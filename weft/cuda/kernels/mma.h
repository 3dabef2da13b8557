#pragma once

#include "weft/cuda/kernels/arithmetic.h"
#include "weft/cuda/kernels/launch.h"

/// Products of small matrices of bfloat16 by a warp's tensor cores, and float32 as sums of bfloat16
/// parts. Source of the layouts: NVIDIA, PTX ISA, "Warp level matrix instructions", m16n8k16.
namespace weft::cuda {

/// kUnit bfloat16 numbers, two to a word, the first of them in the low half.
struct alignas(16) HalfUnit {
  uint32_t pairs[kUnit / 2];
};

/// Columns of a tile in shared memory, in units.
inline constexpr int kUnitsOfTile = 4;

/// Where a unit of a tile's row lies: neither eight rows of one column nor a row's units side by
/// side meet a bank of shared memory twice.
WEFT_BOTH int place_in_tile(int row, int unit) {
  return row * kUnitsOfTile + (unit ^ (row / 2 % kUnitsOfTile));
}

/// Two numbers as bfloat16, rounded to nearest even, `low` in the low half.
WEFT_BOTH uint32_t bfloat16_pair(float low, float high) {
#ifdef __CUDA_ARCH__
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
#else
  const auto rounded = [](float value) {
    uint32_t bits;
    __builtin_memcpy(&bits, &value, sizeof(bits));
    if (value != value) return bits >> 16 | 0x40U;
    return (bits + 0x7fffU + (bits >> 16 & 1U)) >> 16;
  };
  return rounded(low) | rounded(high) << 16;
#endif
}

/// Both numbers of a pair.
struct TwoFloats {
  float low, high;
};
/// A pair's values, the low half's first.
WEFT_BOTH TwoFloats values_of(uint32_t pair) {
  return {from_bfloat16(static_cast<uint16_t>(pair)),
          from_bfloat16(static_cast<uint16_t>(pair >> 16))};
}

/// v as a sum of kParts bfloat16 numbers each: a part is what those before it lack, rounded, so
/// that each holds eight more bits of v's 24. Source: Henry, Tang and Heinecke 2019,
/// arXiv:1904.06376.
template <int kParts>
WEFT_BOTH void split_unit(float (&v)[kUnit], HalfUnit (&parts)[kParts]) {
  WEFT_UNROLL for (int part = 0; part < kParts; ++part) {
    WEFT_UNROLL for (int i = 0; i < kUnit / 2; ++i) {
      const uint32_t pair = bfloat16_pair(v[2 * i], v[2 * i + 1]);
      const TwoFloats held = values_of(pair);
      parts[part].pairs[i] = pair;
      v[2 * i] -= held.low;
      v[2 * i + 1] -= held.high;
    }
  }
}

/// What a lane holds of 16 rows and two units of a tile, as the warp's tensor cores take it: word
/// i % 2 + i / 2 * 2 is of row lane / 4 + i % 2 * 8 and unit i / 2.
struct Fragment {
  uint32_t words[4];
};

/// That of rows `row` to row + 15 and units `unit` and unit + 1. All lanes of the warp call it.
__device__ inline Fragment load_fragment(const HalfUnit* tile, int row, int unit) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  Fragment own;
#ifdef __CUDACC__
  const HalfUnit* from = tile + place_in_tile(row + lane % 16, unit + lane / 16);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(own.words[0]), "=r"(own.words[1]), "=r"(own.words[2]), "=r"(own.words[3])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(from))));
#else
  for (int i = 0; i < 4; ++i) {
    const int place = place_in_tile(row + lane / 4 + i % 2 * 8, unit + i / 2);
    own.words[i] = tile[place].pairs[lane % 4];
  }
#endif
  return own;
}

/// The same of the transposed tile: of 16 rows from `row` on as columns, and of the columns of
/// units `unit` and unit + 1 as rows, those of unit i % 2 in word i. All lanes of the warp call it.
__device__ inline Fragment load_transposed(const HalfUnit* tile, int row, int unit) {
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  Fragment own;
#ifdef __CUDACC__
  const HalfUnit* from = tile + place_in_tile(row + lane % 8 + lane / 16 * 8, unit + lane / 8 % 2);
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(own.words[0]), "=r"(own.words[1]), "=r"(own.words[2]), "=r"(own.words[3])
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(from))));
#else
  for (int i = 0; i < 4; ++i) {
    uint32_t pair = 0;
    for (int k = 0; k < 2; ++k) {
      const int place = place_in_tile(row + i / 2 * 8 + lane % 4 * 2 + k, unit + i % 2);
      pair |= (tile[place].pairs[lane / 8] >> (lane / 4 % 2 * 16) & 0xffffU) << (16 * k);
    }
    own.words[i] = pair;
  }
#endif
  return own;
}

/// What a lane holds of a product of 16 x 8: rows lane / 4 and, from the third element on, that
/// plus 8; columns lane % 4 * 2 and the next.
struct Sums {
  float x[4];
};

/// c + a b^T, where b is half of a fragment: its first eight rows for `half` 0, else the others.
/// All lanes of the warp call it. Sums inside are cut off, not rounded, so long ones are to be
/// added outside. Source: Fasi, Higham, Mikaitis and Pranesh 2021, doi:10.7717/peerj-cs.330.
__device__ inline Sums multiply_add(const Fragment& a, const Fragment& b, int half, const Sums& c) {
  const uint32_t b0 = b.words[half], b1 = b.words[half + 2];
  Sums d;
#ifdef __CUDACC__
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
      "{%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
      : "=f"(d.x[0]), "=f"(d.x[1]), "=f"(d.x[2]), "=f"(d.x[3])
      : "r"(a.words[0]), "r"(a.words[1]), "r"(a.words[2]), "r"(a.words[3]), "r"(b0), "r"(b1),
        "f"(c.x[0]), "f"(c.x[1]), "f"(c.x[2]), "f"(c.x[3]));
#else
  test::multiply_fragments(a.words, {b0, b1}, c.x, d.x);
#endif
  return d;
}

/// A block's shared memory as its launch gave it.
template <class T>
__device__ T& launched_memory() {
#ifdef __CUDACC__
  extern __shared__ uint4 launched[];
  return *reinterpret_cast<T*>(launched);
#else
  return *static_cast<T*>(test::launched_memory(sizeof(T)));
#endif
}

}  // namespace weft::cuda
