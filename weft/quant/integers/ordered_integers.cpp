#include "weft/quant/integers/ordered_integers.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <span>
#include <vector>

#include "weft/core/error.h"
#include "weft/quant/affine_reference.h"
#include "weft/quant/integers/packed_words.h"
#include "weft/quant/large_tensor.h"

namespace weft::quant {
namespace {

using core::check;
using core::FormatError;
using core::ShapeError;

void check_ordered(const OrderedIntegers& w, const std::string& where) {
  const int64_t in = w.groups.numel(), out = w.numbers.size(0);
  check<ShapeError>(w.groups.dim() == 1 && w.groups.scalar_type() == at::kInt, where,
                    ": groups of columns, expected int32 [columns], got ", part_text(w.groups),
                    "; check that the file is in this format");
  check<ShapeError>(w.numbers.dim() == 2 && w.numbers.size(1) * 8 == in * w.bits, where,
                    ": numbers, expected rows of ", in, " columns of ", w.bits, " bits, got ",
                    part_text(w.numbers), "; take the same columns of all parts");
  for (const at::Tensor& part : {w.scales, w.zeros}) {
    check<ShapeError>(part.dim() == 2 && part.size(0) == out && part.size(1) == w.scales.size(1),
                      where, ": scales and zero points, expected [", out, ", groups], got ",
                      part_text(part), "; take the same rows of all parts");
  }
}

void check_groups(std::span<const int32_t> groups, int64_t num_groups, const std::string& where) {
  for (size_t column = 0; column < groups.size(); ++column) {
    check<FormatError>(groups[column] >= 0 && groups[column] < num_groups, where, ": column ",
                       column, " is of quant group ", groups[column], ", expected 0 to ",
                       num_groups - 1, "; the file is damaged");
  }
}

// What a thread needs for the rows that it makes.
class RowMaker {
 public:
  RowMaker(const OrderedIntegers& w, std::span<const int32_t> groups)
      : w_(w), groups_(groups), codes_(groups.size()) {}

  void make(int64_t row, float* values) {
    const auto row_bytes = static_cast<size_t>(w_.numbers.size(1));
    const uint8_t* packed = w_.numbers.const_data_ptr<uint8_t>() + row * w_.numbers.size(1);
    reference::unpack({packed, row_bytes}, w_.bits, codes_);
    const float* scales = w_.scales.const_data_ptr<float>() + row * w_.scales.size(1);
    const float* zeros = w_.zeros.const_data_ptr<float>() + row * w_.zeros.size(1);
    for (size_t i = 0; i < groups_.size(); ++i) {
      const auto group = static_cast<size_t>(groups_[i]);
      values[i] = scales[group] * (static_cast<float>(codes_[i]) - zeros[group]);
    }
  }

 private:
  const OrderedIntegers& w_;
  std::span<const int32_t> groups_;
  std::vector<uint8_t> codes_;
};

}  // namespace

at::Tensor plain_numbers(const OrderedIntegers& given, at::ScalarType dtype,
                         const std::string& where) {
  check_ordered(given, where);
  const OrderedIntegers w{given.bits, given.numbers.contiguous(), given.scales.contiguous(),
                          given.zeros.contiguous(), given.groups.contiguous()};
  const std::span<const int32_t> groups(w.groups.const_data_ptr<int32_t>(),
                                        static_cast<size_t>(w.groups.numel()));
  check_groups(groups, w.scales.size(1), where);
  at::Tensor plain = large_tensor({w.numbers.size(0), w.groups.numel()}, dtype);
  constexpr int64_t kRowsAtOnce = 16;
  at::parallel_for(0, plain.size(0), kRowsAtOnce, [&](int64_t begin, int64_t end) {
    RowMaker maker(w, groups);
    at::Tensor row_values = at::empty({plain.size(1)}, at::kFloat);
    for (int64_t row = begin; row < end; ++row) {
      maker.make(row, row_values.mutable_data_ptr<float>());
      plain[row].copy_(row_values);
    }
  });
  check<FormatError>(dtype == at::kFloat || at::isfinite(plain).all().item<bool>(), where,
                     ": holds numbers that ", c10::toString(dtype), " can't; use float32");
  return plain;
}

}  // namespace weft::quant
