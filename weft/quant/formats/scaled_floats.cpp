#include "weft/quant/formats/scaled_floats.h"

#include <array>
#include <cstddef>

#include "weft/quant/formats/microscaled_reference.h"

namespace weft::quant {
namespace {

using Values = std::array<float, 256>;

Values make_values() {
  Values values{};
  for (size_t code = 0; code < values.size(); ++code) {
    values[code] = reference::e4m3_value(static_cast<uint8_t>(code));
  }
  return values;
}

}  // namespace

void scale_e4m3(std::span<const uint8_t> codes, float scale, float* to) {
  static const Values kValues = make_values();
  const float* const values = kValues.data();
  for (size_t i = 0; i < codes.size(); ++i) to[i] = scale * values[codes[i]];
}

}  // namespace weft::quant
