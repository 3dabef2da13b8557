#pragma once

#include <cstdint>
#include <utility>

#include "weft/nn/kernels/vectors.h"

/// What attention over a cache's rows needs whatever they consist of. V: see vectors.h.
namespace weft::nn::kernels {

/// Place `lane` of two vectors' pair sums in blocks of kBlock: where its first summand lies in the
/// two, end to end.
template <int kWidth, int kBlock>
consteval int first_summand(int lane) {
  const int block = lane / kBlock;
  return block / 2 * 2 * kBlock + lane % kBlock + (block % 2 == 1 ? kWidth : 0);
}

/// The sums of neighbouring blocks of two vectors' lanes, in the lanes' order.
template <class V, int kBlock, int... kLane>
[[gnu::always_inline]] inline typename V::F add_pairs(typename V::F a, typename V::F b,
                                                      std::integer_sequence<int, kLane...>) {
  return __builtin_shufflevector(a, b, first_summand<V::kWidth, kBlock>(kLane)...) +
         __builtin_shufflevector(a, b, (first_summand<V::kWidth, kBlock>(kLane) + kBlock)...);
}

/// A vector of the sums of V::kWidth vectors: parts[i]'s comes to place i. Overwrites parts.
template <class V, int kBlock = 1>
[[gnu::always_inline]] inline typename V::F sum_each(typename V::F* parts) {
  if constexpr (kBlock == V::kWidth) {
    return parts[0];
  } else {
    for (int i = 0; i < V::kWidth / kBlock / 2; ++i) {
      parts[i] = add_pairs<V, kBlock>(parts[2 * i], parts[2 * i + 1],
                                      std::make_integer_sequence<int, V::kWidth>());
    }
    return sum_each<V, 2 * kBlock>(parts);
  }
}

/// `count` elements of rows that end with `end` are read now: asks for those that come then, and
/// behind the end for those from `next` on. A cache of many positions has left the processor's
/// caches since the last token.
template <class T>
[[gnu::always_inline]] static inline void fetch_rows(const T* rows, int64_t count, const T* end,
                                                     const T* next) {
  constexpr int64_t kFar = 4096 / sizeof(T), kNear = 1024 / sizeof(T), kLine = 64 / sizeof(T);
  if (end - rows >= kFar + count) {
    for (int64_t i = 0; i < count; i += kLine) {
      __builtin_prefetch(rows + kFar + i, 0, 2);
      __builtin_prefetch(rows + kNear + i, 0, 3);
    }
    return;
  }
  for (int64_t i = 0; i < count; i += kLine) {
    const T *const far = rows + kFar + i, *const near = rows + kNear + i;
    __builtin_prefetch(far < end ? far : next + (far - end), 0, 2);
    __builtin_prefetch(near < end ? near : next + (near - end), 0, 3);
  }
}

/// The sums of `parts`, scores of kQueries queries, row after row of `positions`, for those from
/// `first` on: as many as have their sums in one vector, or `left` if that is less.
template <class V, int kQueries>
[[gnu::always_inline]] inline void store_scores(typename V::F* parts, int64_t positions,
                                                int64_t first, int64_t left, float* scores) {
  constexpr int kPositions = V::kWidth / kQueries;
  float sums[V::kWidth];
  V::store(sum_each<V>(parts), sums);
  for (int j = 0; j < kQueries; ++j) {
    float* const own = scores + j * positions + first;
    for (int s = 0; s < kPositions && s < left; ++s) own[s] = sums[j * kPositions + s];
  }
}

}  // namespace weft::nn::kernels
