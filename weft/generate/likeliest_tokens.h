#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "weft/models/model.h"

namespace weft::generate {

/// The likeliest token after each of x_BTD, hidden states: B * T of them, equal on all ranks.
/// Throws ConfigError, on all ranks, if a logit is NaN or plus infinity, or none is finite.
/// Collective.
std::vector<int64_t> likeliest_tokens(models::CausalLM& model, const at::Tensor& x_BTD);

}  // namespace weft::generate
