#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "weft/cuda/buffer.h"

namespace weft::bench {

inline constexpr int64_t kFloat = sizeof(float);

double median(std::vector<double> values);

/// Memory of the GPU that repeats one piece, which the host has too.
struct Repeated {
  std::vector<float> piece;
  cuda::Buffer buffer;
  float at(int64_t index) const {
    return piece[static_cast<size_t>(index % static_cast<int64_t>(piece.size()))];
  }
};
/// `count` floats between -1 and 1.
Repeated random_floats(int64_t count);
/// Numbers that are neither large nor NaN, whatever they are read as.
cuda::Buffer any_numbers(int64_t bytes);
/// 32 bits that look random.
uint32_t next_random(uint32_t& state);

/// Seconds of one of `count` runs in a graph: the median of a few. Waits for the GPU.
double seconds_on_gpu(int count, const std::function<void(int)>& run);

}  // namespace weft::bench
