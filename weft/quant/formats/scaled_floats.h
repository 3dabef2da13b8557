#pragma once

#include <cstdint>
#include <span>

namespace weft::quant {

/// to[i] = scale * the E4M3 number codes[i], in float32: one rounding. `to` has as many as `codes`.
/// NaN (0x7F, 0xFF) stays NaN. Source: OCP 8-bit Floating Point Specification (OFP8), E4M3.
void scale_e4m3(std::span<const uint8_t> codes, float scale, float* to);

}  // namespace weft::quant
