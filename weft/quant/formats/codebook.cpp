#include "weft/quant/formats/codebook.h"

namespace weft::quant {

void scale_codebook(std::span<const uint8_t> codes, std::span<const float, 16> book, float scale,
                    float* to) {
  constexpr unsigned kCodeBits = 4, kLowCode = 15;
  for (size_t i = 0; i < codes.size(); ++i) {
    to[2 * i] = scale * book[codes[i] >> kCodeBits];
    to[2 * i + 1] = scale * book[codes[i] & kLowCode];
  }
}

}  // namespace weft::quant
