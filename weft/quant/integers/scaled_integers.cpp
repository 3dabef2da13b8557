#include "weft/quant/integers/scaled_integers.h"

#include <ATen/ATen.h>

#include "weft/core/error.h"
#include "weft/quant/integers/packed_words.h"

namespace weft::quant {
namespace {

using core::check;
using core::ShapeError;

constexpr const char* kScaledIntegers = "quant.from_scaled_integers";

bool is_matrix_of(const at::Tensor& part, at::ScalarType type) {
  return part.defined() && part.dim() == 2 && part.scalar_type() == type && part.numel() > 0;
}

// Numbers of int8 as those of 8 bits that are never negative.
at::Tensor packed_numbers(const ScaledIntegers& stored) {
  const at::Tensor& numbers = stored.numbers;
  if (stored.bits == 8 && is_matrix_of(numbers, at::kChar)) {
    return numbers.contiguous().view(at::kByte).bitwise_xor(0x80);
  }
  check<ShapeError>(is_matrix_of(numbers, at::kByte) && numbers.size(1) * 8 % stored.bits == 0,
                    kScaledIntegers, ": numbers, expected rows of whole ", stored.bits,
                    "-bit numbers, got ", part_text(numbers),
                    "; check that the file is in this format");
  return numbers.contiguous();
}

void check_scales_of_rows(const at::Tensor& scales, const AffineTensor& w) {
  const int64_t groups = w.in_features() / w.group_size;
  const bool fits = scales.defined() && scales.dim() == 2 && scales.is_floating_point() &&
                    scales.size(0) == w.out_features() &&
                    (scales.size(1) == groups || scales.size(1) == 1);
  check<ShapeError>(fits, kScaledIntegers, ": scales, expected floating [", w.out_features(), ", ",
                    groups, "], or one for each row, got ", part_text(scales),
                    "; take the same rows and columns of all parts");
}

// Zero points [out, as scales] in float32, as codes that are never negative.
at::Tensor zero_codes(const ScaledIntegers& stored) {
  const int64_t out = stored.scales.size(0), columns = stored.scales.size(1);
  const bool are_single = is_matrix_of(stored.zeros, at::kByte);
  if (are_single && stored.zeros.sizes() == stored.scales.sizes()) {
    return stored.zeros.to(at::kFloat);
  }
  const bool fits = is_matrix_of(stored.zeros, at::kInt) && out * stored.bits % kWordBits == 0 &&
                    stored.zeros.size(0) == out * stored.bits / kWordBits &&
                    stored.zeros.size(1) == columns;
  check<ShapeError>(fits, kScaledIntegers, ": zero points, expected int32 [", out, " * ",
                    stored.bits, " / 32, ", columns, "] or uint8 as scales, got ",
                    part_text(stored.zeros), "; take the same rows and columns of all parts");
  return unpack_words(stored.zeros.t(), stored.bits, out).t().to(at::kFloat);
}

}  // namespace

AffineTensor from_scaled_integers(const ScaledIntegers& stored, int64_t group_size) {
  AffineTensor w;
  w.bits = stored.bits;
  w.group_size = group_size;
  w.packed = packed_numbers(stored);
  check<ShapeError>(group_size > 0 && w.in_features() % group_size == 0, kScaledIntegers,
                    ": group size, expected a divisor of the ", w.in_features(), " columns, got ",
                    group_size, "; cut at quant groups");
  check_scales_of_rows(stored.scales, w);
  const auto for_groups = [&](const at::Tensor& part) {
    return part.expand({w.out_features(), w.in_features() / group_size}).contiguous();
  };
  if (!stored.zeros.defined()) {
    w.scales = for_groups(stored.scales);
    return w;
  }
  const at::Tensor wide = stored.scales.to(at::kFloat);
  w.scales = for_groups(wide);
  w.offsets = for_groups(zero_codes(stored).neg() * wide);
  return w;
}

OrderedIntegers ordered_integers(const ScaledIntegers& stored) {
  const at::Tensor scales = stored.scales.to(at::kFloat);
  const double middle = static_cast<double>(int64_t{1} << (stored.bits - 1));
  return {stored.bits,
          packed_numbers(stored),
          scales,
          stored.zeros.defined() ? zero_codes(stored) : at::full_like(scales, middle),
          {}};
}

}  // namespace weft::quant
