#pragma once

#include <ATen/core/Tensor.h>

#include "weft/nn/layers/activation.h"

namespace weft::nn {

/// silu(gate) * up: one pass each way that keeps gate and up alone, in float32 and bfloat16 (the
/// latter rounded once); composed for other types. Throws ShapeError unless both have one shape
/// and type, ConfigError for a gradient of the gradient. Source: Shazeer 2020, arXiv:2002.05202.
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);

/// What `gating` makes of both, of one shape and type: swiglu, or composed of libtorch's
/// operations.
at::Tensor gated(const at::Tensor& gate, const at::Tensor& up, const Gating& gating);

}  // namespace weft::nn
