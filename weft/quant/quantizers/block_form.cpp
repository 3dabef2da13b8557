#include "weft/quant/quantizers/block_form.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <iterator>

namespace weft::quant {
namespace {

using core::Dtype;

// What kIq4Codes of formats/gguf_grids.h stand for: code - 128.
constexpr float kIq4Points[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                  1,    13,   25,  38,  53,  69,  89,  113};

constexpr BlockForm kForms[] = {
    {.dtype = Dtype::kQ4_0, .codes = {15, 8}},
    {.dtype = Dtype::kQ4_1, .codes = {15, 0}, .has_offsets = true},
    {.dtype = Dtype::kQ5_0, .codes = {31, 16}},
    {.dtype = Dtype::kQ5_1, .codes = {31, 0}, .has_offsets = true},
    {.dtype = Dtype::kQ8_0, .codes = {255, 128}},
    {.dtype = Dtype::kIQ4NL, .codes = {15, 0, kIq4Points}},
    {.dtype = Dtype::kQ2K,
     .block = 256,
     .group = 16,
     .codes = {3, 0},
     .has_offsets = true,
     .most_scale = 15,
     .most_offset = 15},
    {.dtype = Dtype::kQ3K,
     .block = 256,
     .group = 16,
     .codes = {7, 4},
     .least_scale = -32,
     .most_scale = 31},
    {.dtype = Dtype::kQ4K,
     .block = 256,
     .codes = {15, 0},
     .has_offsets = true,
     .most_scale = 63,
     .most_offset = 63},
    {.dtype = Dtype::kQ5K,
     .block = 256,
     .codes = {31, 0},
     .has_offsets = true,
     .most_scale = 63,
     .most_offset = 63},
    {.dtype = Dtype::kQ6K,
     .block = 256,
     .group = 16,
     .codes = {63, 32},
     .least_scale = -128,
     .most_scale = 127},
    {.dtype = Dtype::kIQ4XS,
     .block = 256,
     .codes = {15, 0, kIq4Points},
     .least_scale = -32,
     .most_scale = 31},
};

}  // namespace

const BlockForm* find_block_form(Dtype dtype) {
  const auto* const found = std::ranges::find(kForms, dtype, &BlockForm::dtype);
  return found == std::end(kForms) ? nullptr : found;
}

float as_stored(c10::ScalarType type, float number) {
  if (type == c10::ScalarType::Half) return static_cast<float>(c10::Half(number));
  const bool is_short = type == c10::ScalarType::BFloat16;
  return is_short ? static_cast<float>(c10::BFloat16(number)) : number;
}

}  // namespace weft::quant
