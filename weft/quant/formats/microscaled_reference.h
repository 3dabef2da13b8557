#pragma once

#include <cstdint>
#include <span>

#include "weft/quant/scheme.h"

/// The microscaled formats in plain C++: what the kernels are compared with. Source of the number
/// formats: OCP Microscaling Formats (MX) Specification v1.0, and OFP8 for E4M3.
namespace weft::quant::reference {

/// Sign, two bits of exponent, one of mantissa: 0, 0.5, 1, 1.5, 2, 3, 4, 6. code: below 16.
float e2m1_value(uint8_t code);
/// Sign, four bits of exponent, three of mantissa; up to 448, no infinities, 0x7F and 0xFF NaN.
float e4m3_value(uint8_t code);
/// A power of two, 2^(code - 127); 255 is NaN.
float e8m0_value(uint8_t code);

/// The nearest code, the smaller in magnitude of two that are as near (as MLX on the CPU), never
/// minus zero; the largest beyond it.
uint8_t e2m1_code(float value);
/// The nearest code, the even one of two that are as near; the largest beyond it.
uint8_t e4m3_code(float value);
/// The least power of two that is not below `value`, or the least or largest there is; 1 for zero.
uint8_t e8m0_code(float value);

/// The value of a code and of a scale in `mode`, which is not kAffine.
float element_value(Mode mode, uint8_t code);
float scale_value(Mode mode, uint8_t scale);

/// Quantizes one quant group and returns its scale. w: finite. codes: as many as w.
/// Source: MLX's quantizer: the scale is the largest magnitude over that of the elements, rounded
/// up to a power of two (mxfp4, mxfp8) or to the nearest E4M3 (nvfp4); the rest is rounding.
uint8_t quantize_microscaled_group(Mode mode, std::span<const float> w, std::span<uint8_t> codes);

}  // namespace weft::quant::reference
