#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>

#include "weft/nn/attention/rope_scaling.h"

namespace weft::models {

/// Llama 3's rope scaling as a GGUF keeps it: the numbers, float32 [dim / 2], that the plain
/// frequencies of `dim` rotated features are divided by (rope_freqs.weight).
at::Tensor llama3_divisors(int64_t dim, double base, const nn::RopeScaling& scaling);

/// The inverse: RopeType::kLlama3 with numbers that give these divisors to 1e-5, kDefault if all
/// are 1, nothing if they are of no such scaling. Only the ratios of original positions and both
/// frequency factors are in the divisors; of those that fit, low_freq_factor 1 is preferred, as
/// published models have it.
std::optional<nn::RopeScaling> llama3_from_divisors(const at::Tensor& divisors, int64_t dim,
                                                    double base);

}  // namespace weft::models
