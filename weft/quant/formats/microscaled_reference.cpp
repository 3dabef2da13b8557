#include "weft/quant/formats/microscaled_reference.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace weft::quant::reference {
namespace {

constexpr std::array<float, 8> kE2m1 = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
constexpr float kLargestE4m3 = 448;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

}  // namespace

float e2m1_value(uint8_t code) {
  const float magnitude = kE2m1[code & 7];
  return (code & 8) != 0 ? -magnitude : magnitude;
}

float e4m3_value(uint8_t code) {
  const int exponent = code >> 3 & 15;
  const int mantissa = code & 7;
  if ((code & 0x7F) == 0x7F) return kNan;
  // Without an exponent there is no leading one.
  const auto digits = static_cast<float>(exponent == 0 ? mantissa : 8 + mantissa);
  const float magnitude = std::ldexp(digits, std::max(exponent, 1) - 10);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

float e8m0_value(uint8_t code) { return code == 255 ? kNan : std::ldexp(1.0F, code - 127); }

uint8_t e2m1_code(float value) {
  const float magnitude = std::abs(value);
  size_t code = 0;
  while (code < 7 && magnitude > (kE2m1[code] + kE2m1[code + 1]) / 2) ++code;
  const bool is_negative = value < 0 && code != 0;
  return static_cast<uint8_t>(is_negative ? code | 8 : code);
}

uint8_t e4m3_code(float value) {
  constexpr float kLeastNormal = 0.015625F;
  const float magnitude = std::min(std::abs(value), kLargestE4m3);
  const int exponent = magnitude < kLeastNormal ? -6 : std::ilogb(magnitude);
  // A mantissa that is rounded up to 16 carries into the exponent.
  const int digits = static_cast<int>(std::nearbyint(std::ldexp(magnitude, 3 - exponent)));
  const int code = (exponent + 6) * 8 + digits;
  return static_cast<uint8_t>(std::signbit(value) ? code | 0x80 : code);
}

uint8_t e8m0_code(float value) {
  if (value == 0) return 127;
  int exponent = 0;
  const float digits = std::frexp(value, &exponent);
  if (digits == 0.5F) --exponent;
  return static_cast<uint8_t>(std::clamp(exponent + 127, 0, 254));
}

float element_value(Mode mode, uint8_t code) {
  return mode == Mode::kMxfp8 ? e4m3_value(code) : e2m1_value(code);
}

float scale_value(Mode mode, uint8_t scale) {
  return mode == Mode::kNvfp4 ? e4m3_value(scale) : e8m0_value(scale);
}

uint8_t quantize_microscaled_group(Mode mode, std::span<const float> w, std::span<uint8_t> codes) {
  const bool is_wide = mode == Mode::kMxfp8;
  float largest = 0;
  for (const float value : w) largest = std::max(largest, std::abs(value));
  const float ratio = largest / (is_wide ? kLargestE4m3 : kE2m1.back());
  const uint8_t scale = mode == Mode::kNvfp4 ? e4m3_code(ratio) : e8m0_code(ratio);
  const float unit = scale_value(mode, scale);
  for (size_t k = 0; k < w.size(); ++k) {
    const float value = unit == 0 ? 0 : w[k] / unit;
    codes[k] = is_wide ? e4m3_code(value) : e2m1_code(value);
  }
  return scale;
}

}  // namespace weft::quant::reference
