#include "weft/nn/ordered/capped.h"

#include <ATen/Parallel.h>

#include <cmath>

namespace weft::nn::ordered {

at::Tensor capped(const at::Tensor& x, float cap) {
  constexpr int64_t kGrain = 1024;
  at::Tensor y = x.contiguous();
  auto* const numbers = y.mutable_data_ptr<float>();
  at::parallel_for(0, y.numel(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) numbers[i] = cap * std::tanh(numbers[i] / cap);
  });
  return y;
}

}  // namespace weft::nn::ordered
