#pragma once

#include "weft/cuda/kernels/arithmetic.h"
#include "weft/cuda/runtime.h"

namespace weft::cuda {

inline constexpr unsigned kAllLanes = 0xffffffffU;

/// The sum of all lanes' values, the same bits on each. All lanes of the warp call it.
__device__ inline float warp_sum(float value) {
  for (int step = kLanes / 2; step > 0; step /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, step);
  }
  return value;
}

}  // namespace weft::cuda
