#pragma once

#include <ATen/core/Tensor.h>

namespace weft::nn::ordered {

/// cap * tanh(x / cap) of float32, which it may overwrite. Each number's bits depend on it alone:
/// libtorch's own rounds otherwise where a tensor's last vector is not full, which is elsewhere in
/// each rank's part of a vocabulary. Not collective.
at::Tensor capped(const at::Tensor& x, float cap);

}  // namespace weft::nn::ordered
