#pragma once

#include <cstdint>

#include "weft/nn/kernels/block_cache.h"
#include "weft/nn/kernels/cached_rows.h"
#include "weft/nn/kernels/kernel.h"
#include "weft/nn/kernels/row_loops.h"
#include "weft/nn/kernels/vectors.h"

/// Attention of one token's queries over the positions of a cache of elements T: float, Float16 or
/// ByteBlock, whose own loops stand in block_cache.h. V: see vectors.h.
namespace weft::nn::kernels {

/// Scores of kQueries queries, row after row, for the positions from `first` on: as many as have
/// their sums in one vector, or `left` if that is less.
template <class V, class T, int kQueries>
[[gnu::always_inline]] inline void score_some(const CachedHead& head, int64_t first, int64_t left,
                                              float* scores) {
  constexpr int kPositions = V::kWidth / kQueries;
  const int64_t H = head.head_dim;
  const auto* const keys = static_cast<const T*>(head.k);
  typename V::F parts[V::kWidth] = {};
  fetch_rows(keys + first * H, kPositions * H, keys + head.positions * H,
             static_cast<const T*>(head.v));
  for_vectors<V>(
      H, [&](int64_t i, int n) __attribute__((always_inline)) {
        typename V::F q[kQueries];
        for (int j = 0; j < kQueries; ++j) q[j] = load_some<V>(head.q + j * H + i, n);
#pragma GCC unroll 16
        for (int s = 0; s < kPositions; ++s) {
          const int64_t at = s < left ? s : left - 1;
          const typename V::F k = load_some<V>(keys + (first + at) * H + i, n);
#pragma GCC unroll 4
          for (int j = 0; j < kQueries; ++j) parts[j * kPositions + s] += q[j] * k;
        }
      });
  store_scores<V, kQueries>(parts, head.positions, first, left, scores);
}

/// The same for any T.
template <class V, class T, int kQueries>
[[gnu::always_inline]] inline void score_part(const CachedHead& head, int64_t first, int64_t left,
                                              float* scores) {
  if constexpr (kIsBlock<T>) {
    score_blocks<V, kQueries>(head, first, left, scores);
  } else {
    score_some<V, T, kQueries>(head, first, left, scores);
  }
}

/// scores[j, s] = q_j k_s for all positions, of the two halves in turns: memory answers two streams
/// faster than one.
template <class V, class T, int kQueries>
[[gnu::always_inline]] inline void score_positions(const CachedHead& head, float* scores) {
  constexpr int kPositions = V::kWidth / kQueries;
  const int64_t half = head.positions / (2 * kPositions) * kPositions;
  int64_t first = 0;
  for (; first < half; first += kPositions) {
    score_part<V, T, kQueries>(head, first, kPositions, scores);
    score_part<V, T, kQueries>(head, half + first, kPositions, scores);
  }
  first = 2 * half;
  for (; first + kPositions <= head.positions; first += kPositions) {
    score_part<V, T, kQueries>(head, first, kPositions, scores);
  }
  const int64_t left = head.positions - first;
  if (left > 0) score_part<V, T, kQueries>(head, first, left, scores);
}

/// scores become cap * tanh(score / cap).
template <class V>
[[gnu::always_inline]] inline void cap_array(float cap, float* scores, int64_t count) {
  for_vectors<V>(
      count, [&](int64_t i, int n) __attribute__((always_inline)) {
        store_some<V>(V::tanh(load_some<V>(scores + i, n) / cap) * cap, scores + i, n);
      });
}

/// scores become e^(score - the largest); returns 1 / their sum and that of the sink, one more
/// score (minus infinity: none).
template <class V>
[[gnu::always_inline]] inline float soften(float* scores, int64_t positions, float sink) {
  const float largest = row_max<V, float>({scores, positions, 0});
  const float most = sink > largest ? sink : largest;
  typename V::F sums{};
  for_vectors<V>(
      positions, [&](int64_t i, int n) __attribute__((always_inline)) {
        store_some<V>(V::exp(load_some<V>(scores + i, n) - most), scores + i, n);
        sums += load_some<V>(scores + i, n);
      });
  return 1 / (V::sum(sums) + V::exp(V::all(sink - most))[0]);
}

/// kCount vectors of the outputs from element `at` on: the values, weighted; two positions at a
/// time, so that one sum need not wait for the last.
template <class V, class T, int kQueries, int kCount>
[[gnu::always_inline]] inline void mix_values(const CachedHead& head, const float* weights,
                                              const float* factors, int64_t at) {
  const int64_t H = head.head_dim, positions = head.positions;
  typename V::F even[kQueries][kCount] = {}, odd[kQueries][kCount] = {};
  const T *const begin = static_cast<const T*>(head.v), *const end = begin + positions * H;
  const T* v = begin + at;
  int64_t s = 0;
  for (; s + 2 <= positions; s += 2, v += 2 * H) {
    fetch_rows(v, kCount * V::kWidth, end, begin);
    fetch_rows(v + H, kCount * V::kWidth, end, begin);
#pragma GCC unroll 4
    for (int i = 0; i < kCount; ++i) {
      const typename V::F here = V::load(v + i * V::kWidth), next = V::load(v + H + i * V::kWidth);
#pragma GCC unroll 4
      for (int j = 0; j < kQueries; ++j) {
        even[j][i] += here * weights[j * positions + s];
        odd[j][i] += next * weights[j * positions + s + 1];
      }
    }
  }
  for (int j = 0; j < kQueries; ++j) {
    for (int i = 0; i < kCount; ++i) {
      if (s < positions) even[j][i] += V::load(v + i * V::kWidth) * weights[j * positions + s];
      V::store((even[j][i] + odd[j][i]) * factors[j], head.o + j * H + at + i * V::kWidth);
    }
  }
}

/// The same for any T.
template <class V, class T, int kQueries, int kCount>
[[gnu::always_inline]] inline void mix_part(const CachedHead& head, const float* weights,
                                            const float* factors, int64_t at) {
  if constexpr (kIsBlock<T>) {
    mix_blocks<V, kQueries, kCount>(head, weights, factors, at);
  } else {
    mix_values<V, T, kQueries, kCount>(head, weights, factors, at);
  }
}

/// One element of an output, where no vector is left.
template <class V, class T>
[[gnu::always_inline]] inline float mix_one(const CachedHead& head, const float* weights,
                                            float factor, int64_t at) {
  const T* const v = static_cast<const T*>(head.v) + at;
  float sum = 0;
  for (int64_t s = 0; s < head.positions; ++s) {
    sum += weights[s] * load_some<V>(v + s * head.head_dim, 1)[0];
  }
  return sum * factor;
}

/// CacheKernel::attend for kQueries queries.
template <class V, class T, int kQueries>
[[gnu::always_inline]] inline void attend_queries(const CachedHead& head, float* scores) {
  // As many sums as registers hold.
  constexpr int kOfValues =
      V::kWidth >= 16 ? (kQueries < 4 ? 4 : 2) : (kQueries < 2 ? 4 : 4 / kQueries);
  constexpr int kMost = kIsBlock<T> ? kBlockVectors<V, kQueries> : kOfValues;
  const int64_t H = head.head_dim;
  score_positions<V, T, kQueries>(head, scores);
  if (head.cap != 0) cap_array<V>(head.cap, scores, kQueries * head.positions);
  float factors[kQueries];
  for (int j = 0; j < kQueries; ++j) {
    const float sink = head.sinks == nullptr ? -__builtin_inff() : head.sinks[j];
    factors[j] = soften<V>(scores + j * head.positions, head.positions, sink);
  }
  const int64_t dim = head.value_dim == 0 ? H : head.value_dim;
  int64_t at = 0;
  for (; at + kMost * V::kWidth <= dim; at += kMost * V::kWidth) {
    mix_part<V, T, kQueries, kMost>(head, scores, factors, at);
  }
  for (; at + V::kWidth <= dim; at += V::kWidth) {
    mix_part<V, T, kQueries, 1>(head, scores, factors, at);
  }
  if constexpr (!kIsBlock<T>) {
    for (; at < dim; ++at) {
      for (int j = 0; j < kQueries; ++j) {
        head.o[j * H + at] = mix_one<V, T>(head, scores + j * head.positions, factors[j], at);
      }
    }
  }
}

/// attend_queries for any number of them up to kMost.
template <class V, class T, int kMost = kCachedQueries>
[[gnu::always_inline]] inline void attend_up_to(const CachedHead& head, float* scores) {
  if (kMost == 1 || head.queries >= kMost) return attend_queries<V, T, kMost>(head, scores);
  if constexpr (kMost > 1) attend_up_to<V, T, kMost - 1>(head, scores);
}

/// CacheKernel::attend.
template <class V, class T>
void attend_cached(const CachedHead& head, float* scores) {
  CachedHead left = head;
  while (left.queries > 0) {
    attend_up_to<V, T>(left, scores);
    left.queries -= kCachedQueries;
    if (left.sinks != nullptr) left.sinks += kCachedQueries;
    left.q += kCachedQueries * left.head_dim;
    left.o += kCachedQueries * left.head_dim;
  }
}

/// All of it for elements T.
template <class V, class T>
constexpr CacheKernel cache_kernel() {
  if constexpr (kIsBlock<T>) {
    return {attend_cached<V, T>, narrow_blocks<V>, widen_blocks<V>};
  } else {
    return {attend_cached<V, T>, narrow_array<V, T>, widen_array<V, T>};
  }
}

}  // namespace weft::nn::kernels
