#pragma once

#include <cstdint>

#include "weft/nn/kernels/kernel.h"
#include "weft/nn/kernels/row_loops.h"
#include "weft/nn/kernels/vectors.h"

/// A gated delta net's convolution and rule. V: see vectors.h.
namespace weft::nn::kernels {

/// Columns `first` and on of a head, `count` of which are in the last of kVectors vectors: their
/// part of the state stays in the first cache for all tokens.
template <class V, int kVectors>
[[gnu::always_inline]] inline void delta_columns(const DeltaHead& head, int64_t first, int count) {
  using F = typename V::F;
  const int64_t columns = head.value_dim;
  const auto some = [&](int j) { return j + 1 < kVectors ? V::kWidth : count; };
  for (int64_t t = 0; t < head.tokens; ++t) {
    const float* const key = head.keys + t * head.key_dim;
    const float* const query = head.queries + t * head.key_dim;
    const float* const value = head.values + t * head.value_stride + first;
    float* const out = head.out + t * head.out_stride + first;
    const float kept = head.kept[t * head.number_stride], rate = head.rates[t * head.number_stride];
    F written[kVectors] = {}, sums[kVectors] = {};
    const float* from = head.state + first;
    for (int64_t k = 0; k < head.key_dim; ++k, from += columns) {
      for (int j = 0; j < kVectors; ++j) {
        written[j] += load_some<V>(from + j * V::kWidth, some(j)) * key[k];
      }
    }
    for (int j = 0; j < kVectors; ++j) {
      written[j] = (load_some<V>(value + j * V::kWidth, some(j)) - written[j] * kept) * rate;
    }
    float* row = head.state + first;
    for (int64_t k = 0; k < head.key_dim; ++k, row += columns) {
      for (int j = 0; j < kVectors; ++j) {
        float* const at = row + j * V::kWidth;
        const F state = load_some<V>(at, some(j)) * kept + written[j] * key[k];
        store_some<V>(state, at, some(j));
        sums[j] += state * query[k];
      }
    }
    for (int j = 0; j < kVectors; ++j) store_some<V>(sums[j], out + j * V::kWidth, some(j));
  }
}

/// Kernel::delta.
template <class V>
void delta(const DeltaHead& head) {
  constexpr int kVectors = 4;
  int64_t first = 0;
  for (; first + kVectors * V::kWidth <= head.value_dim; first += kVectors * V::kWidth) {
    delta_columns<V, kVectors>(head, first, V::kWidth);
  }
  for (; first + V::kWidth <= head.value_dim; first += V::kWidth) {
    delta_columns<V, 1>(head, first, V::kWidth);
  }
  if (first < head.value_dim) {
    delta_columns<V, 1>(head, first, static_cast<int>(head.value_dim - first));
  }
}

/// Kernel::convolve.
template <class V>
void convolve(const Convolution& in) {
  for (int64_t t = 0; t < in.tokens; ++t) {
    for_vectors<V>(
        in.channels, [&](int64_t i, int n) __attribute__((always_inline)) {
          typename V::F sum{};
          for (int64_t tap = 0; tap < in.taps; ++tap) {
            const float* const weights = in.weights + tap * in.weight_stride;
            sum += load_some<V>(weights + in.first + i, n) *
                   load_some<V>(in.rows[t + tap] + in.first + i, n);
          }
          store_some<V>(sum * sigmoid<V>(sum), in.y + t * in.channels + i, n);
        });
  }
}

}  // namespace weft::nn::kernels
