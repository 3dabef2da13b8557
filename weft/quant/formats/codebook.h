#pragma once

#include <cstdint>
#include <span>

namespace weft::quant {

/// Codes of 4 bits that stand for the numbers of a book of 16, two in a byte, the first in its high
/// half: to[i] = scale * book[code i], in float32. `to` has twice as many as `codes`.
void scale_codebook(std::span<const uint8_t> codes, std::span<const float, 16> book, float scale,
                    float* to);

}  // namespace weft::quant
