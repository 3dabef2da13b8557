#pragma once

#include <cstdint>

#include "weft/nn/kernels/cached_rows.h"
#include "weft/nn/kernels/kernel.h"

/// Loops over a cache of ByteBlock, for cached_attention.h. V: see vectors.h.
namespace weft::nn::kernels {

template <class T>
inline constexpr bool kIsBlock = false;
template <>
inline constexpr bool kIsBlock<ByteBlock> = true;

/// score_some.
template <class V, int kQueries>
[[gnu::always_inline]] inline void score_blocks(const CachedHead& head, int64_t first, int64_t left,
                                                float* scores) {
  constexpr int kPositions = V::kWidth / kQueries;
  const int64_t H = head.head_dim, blocks = H / kByteBlock;
  const auto* const keys = static_cast<const ByteBlock*>(head.k);
  typename V::F parts[V::kWidth] = {};
  fetch_rows(keys + first * blocks, kPositions * blocks, keys + head.positions * blocks,
             static_cast<const ByteBlock*>(head.v));
  for (int64_t b = 0; b < blocks; ++b) {
#pragma GCC unroll 8
    for (int64_t i = 0; i < kByteBlock; i += V::kWidth) {
      typename V::F q[kQueries];
      for (int j = 0; j < kQueries; ++j) q[j] = V::load(head.q + j * H + b * kByteBlock + i);
#pragma GCC unroll 16
      for (int s = 0; s < kPositions; ++s) {
        const int64_t at = s < left ? s : left - 1;
        const ByteBlock& block = keys[(first + at) * blocks + b];
        const typename V::F k = V::load(block.values + i) * block.scale;
#pragma GCC unroll 4
        for (int j = 0; j < kQueries; ++j) parts[j * kPositions + s] += q[j] * k;
      }
    }
  }
  store_scores<V, kQueries>(parts, head.positions, first, left, scores);
}

/// Vectors of outputs whose sums registers hold, as many as lie in a block or whole blocks.
template <class V, int kQueries>
inline constexpr int kBlockVectors = V::kWidth >= 16 ? (kQueries < 4 ? 4 : 2)
                                                     : (kQueries == 1 ? 8 : (kQueries < 4 ? 4 : 2));

/// Adds kEach vectors of a block, from its number `within` on, to sums[j][first] and on, times
/// weights[j]. `sums` has kCount vectors for each query.
template <class V, int kQueries, int kCount, int kEach>
[[gnu::always_inline]] inline void add_block(const ByteBlock& block, int64_t within,
                                             const float* weights, typename V::F (*sums)[kCount],
                                             int first) {
#pragma GCC unroll 8
  for (int i = 0; i < kEach; ++i) {
    const typename V::F values = V::load(block.values + within + i * V::kWidth) * block.scale;
#pragma GCC unroll 4
    for (int j = 0; j < kQueries; ++j) sums[j][first + i] += values * weights[j];
  }
}

/// mix_values, a sum for each output.
template <class V, int kQueries, int kCount>
[[gnu::always_inline]] inline void mix_blocks(const CachedHead& head, const float* weights,
                                              const float* factors, int64_t at) {
  constexpr int kOfBlock = static_cast<int>(kByteBlock) / V::kWidth;
  constexpr int kEach = kCount < kOfBlock ? kCount : kOfBlock, kBlocks = kCount / kEach;
  const int64_t H = head.head_dim, positions = head.positions, blocks = H / kByteBlock;
  typename V::F sums[kQueries][kCount] = {};
  const auto* const begin = static_cast<const ByteBlock*>(head.v);
  const ByteBlock* v = begin + at / kByteBlock;
  for (int64_t s = 0; s < positions; ++s, v += blocks) {
    fetch_rows(v, kBlocks, begin + positions * blocks, begin);
    float own[kQueries];
    for (int j = 0; j < kQueries; ++j) own[j] = weights[j * positions + s];
#pragma GCC unroll 2
    for (int b = 0; b < kBlocks; ++b) {
      add_block<V, kQueries, kCount, kEach>(v[b], at % kByteBlock, own, sums, b * kEach);
    }
  }
  for (int j = 0; j < kQueries; ++j) {
    for (int i = 0; i < kCount; ++i) {
      V::store(sums[j][i] * factors[j], head.o + j * H + at + i * V::kWidth);
    }
  }
}

/// CacheKernel::narrow: a block's largest number becomes 127 or -127, others the nearest integers.
template <class V>
void narrow_blocks(const float* x, void* y, int64_t count) {
  // Adding it rounds a number below 2^22 to an integer, ties to even, which the low bits then hold.
  constexpr float kRound = 12582912.0F;
  constexpr int32_t kRoundBits = 0x4B400000;
  auto* block = static_cast<ByteBlock*>(y);
  for (int64_t first = 0; first < count; first += kByteBlock, ++block) {
    typename V::F sizes{}, zeros{};
    for (int i = 0; i < kByteBlock; i += V::kWidth) {
      const typename V::F part = V::load(x + first + i);
      sizes = V::max(sizes, part < 0.0F ? -part : part);
      // Of a number that is not finite it is NaN.
      zeros += part * 0.0F;
    }
    const float most = V::largest(sizes);
    block->scale = most / 127 + V::sum(zeros);
    const float inverse = most > 0 ? 127 / most : 0;
    for (int i = 0; i < kByteBlock; ++i) {
      const float rounded = x[first + i] * inverse + kRound;
      int32_t bits = 0;
      __builtin_memcpy(&bits, &rounded, sizeof(bits));
      block->values[i] = static_cast<int8_t>(bits - kRoundBits);
    }
  }
}

/// CacheKernel::widen.
template <class V>
void widen_blocks(const void* x, float* y, int64_t count) {
  const auto* block = static_cast<const ByteBlock*>(x);
  for (int64_t first = 0; first < count; first += kByteBlock, ++block) {
    for (int i = 0; i < kByteBlock; i += V::kWidth) {
      V::store(V::load(block->values + i) * block->scale, y + first + i);
    }
  }
}

}  // namespace weft::nn::kernels
