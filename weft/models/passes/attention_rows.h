#pragma once

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cstdint>

#include "weft/nn/attention/rope.h"
#include "weft/nn/kernels/select.h"

namespace weft::models {

/// What reads and writes a cache of keys and values of that type: float32, float16, or 8 bits.
inline const nn::kernels::CacheKernel& cache_kernel_of(at::ScalarType dtype) {
  const nn::kernels::Kernel& kernel = nn::kernels::active_kernel();
  if (dtype == at::kHalf) return kernel.float16_cache;
  return dtype == at::kChar ? kernel.byte_cache : kernel.float32_cache;
}

/// How many tiles hold so many rows.
inline int64_t num_tiles(int64_t rows) {
  return (rows + nn::kernels::kTile - 1) / nn::kernels::kTile;
}

/// Cosines and sines of a pass's tokens.
struct Turns {
  const float* cos = nullptr;
  const float* sin = nullptr;
  int64_t dim = 0;
  bool are_neighbours = false;

  /// Null: they turn nothing.
  explicit Turns(const nn::RopeAngles* angles) {
    if (angles == nullptr) return;
    cos = angles->cos().const_data_ptr<float>();
    sin = angles->sin().const_data_ptr<float>();
    dim = angles->cos().size(-1);
    are_neighbours = angles->turns_neighbours();
  }

  /// Turns the first `dim` numbers of a head of the token that has these angles.
  void apply(int64_t token, float* x) const {
    if (dim == 0) return;
    if (are_neighbours) return turn_neighbours(cos + token * dim, sin + token * dim, x);
    nn::kernels::active_kernel().rotate(x, cos + token * dim, sin + token * dim, dim, 1);
  }

 private:
  void turn_neighbours(const float* c, const float* s, float* x) const {
    for (int64_t i = 0; i < dim / 2; ++i) {
      const float a = x[2 * i], b = x[2 * i + 1];
      x[2 * i] = a * c[i] - b * s[i];
      x[2 * i + 1] = b * c[i] + a * s[i];
    }
  }
};

/// A tile of nn::kernels::AttentionHead::kt, [H, kTile], of `count` rows [count, H]; zeros for the
/// others.
inline void to_key_tile(const float* rows, int64_t count, int64_t dim, float* tile) {
  constexpr int64_t kTile = nn::kernels::kTile;
  for (int64_t h = 0; h < dim; ++h, tile += kTile) {
    for (int64_t c = 0; c < count; ++c) tile[c] = rows[c * dim + h];
    std::fill(tile + count, tile + kTile, 0.F);
  }
}

}  // namespace weft::models
