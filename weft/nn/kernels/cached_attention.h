#pragma once

#include <cstdint>
#include <utility>

#include "weft/nn/kernels/kernel.h"
#include "weft/nn/kernels/row_loops.h"
#include "weft/nn/kernels/vectors.h"

/// Attention of one token's query over the positions of a cache. V: see vectors.h.
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

/// scores[s] = q k_s for all positions.
template <class V>
[[gnu::always_inline]] inline void score_positions(const CachedHead& head, float* scores) {
  const int64_t H = head.head_dim;
  for (int64_t first = 0; first < head.positions; first += V::kWidth) {
    const int64_t left = head.positions - first;
    const int count = left < V::kWidth ? static_cast<int>(left) : V::kWidth;
    typename V::F parts[V::kWidth] = {};
    for (int s = 0; s < count; ++s) {
      const float* k = head.k + (first + s) * H;
      for_vectors<V>(
          H, [&](int64_t i, int n) __attribute__((always_inline)) {
            parts[s] += load_some<V>(head.q + i, n) * load_some<V>(k + i, n);
          });
    }
    store_some<V>(sum_each<V>(parts), scores + first, count);
  }
}

/// scores become e^(score - the largest); returns 1 / their sum.
template <class V>
[[gnu::always_inline]] inline float soften(float* scores, int64_t positions) {
  const float most = row_max<V, float>({scores, positions, 0});
  typename V::F sums{};
  for_vectors<V>(
      positions, [&](int64_t i, int n) __attribute__((always_inline)) {
        store_some<V>(V::exp(load_some<V>(scores + i, n) - most), scores + i, n);
        sums += load_some<V>(scores + i, n);
      });
  return 1 / V::sum(sums);
}

/// kCount vectors of the output from element `at` on: the values, weighted; two positions at a
/// time, so that one sum need not wait for the last.
template <class V, int kCount>
[[gnu::always_inline]] inline void mix_values(const CachedHead& head, const float* weights,
                                              float factor, int64_t at) {
  typename V::F even[kCount] = {}, odd[kCount] = {};
  const float* v = head.v + at;
  int64_t s = 0;
  for (; s + 2 <= head.positions; s += 2, v += 2 * head.head_dim) {
    for (int i = 0; i < kCount; ++i) {
      even[i] += V::load(v + i * V::kWidth) * weights[s];
      odd[i] += V::load(v + head.head_dim + i * V::kWidth) * weights[s + 1];
    }
  }
  for (int i = 0; i < kCount; ++i) {
    if (s < head.positions) even[i] += V::load(v + i * V::kWidth) * weights[s];
    V::store((even[i] + odd[i]) * factor, head.o + at + i * V::kWidth);
  }
}

/// Kernel::attend_cached.
template <class V>
void attend_cached(const CachedHead& head, float* scores) {
  constexpr int kMost = 4;
  const int64_t H = head.head_dim;
  score_positions<V>(head, scores);
  const float factor = soften<V>(scores, head.positions);
  int64_t at = 0;
  for (; at + kMost * V::kWidth <= H; at += kMost * V::kWidth) {
    mix_values<V, kMost>(head, scores, factor, at);
  }
  for (; at + V::kWidth <= H; at += V::kWidth) mix_values<V, 1>(head, scores, factor, at);
  for (; at < H; ++at) {
    float sum = 0;
    for (int64_t s = 0; s < head.positions; ++s) sum += scores[s] * head.v[s * H + at];
    head.o[at] = sum * factor;
  }
}

}  // namespace weft::nn::kernels
