#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "weft/quant/kernels/panel_kernel.h"

namespace weft::quant {

/// The upper bytes (sign and most of the exponent) of a matrix of bfloat16, of which weights have
/// few: 4 bits say which, so that a number takes 12 bits and loses none. Source of the idea: Zhang
/// et al. 2025, arXiv:2504.11651, who write exponents as codes of several lengths.
struct UpperBytes {
  /// By index; the first is 0, so that a number of index 0 and lower byte 0 is 0.
  std::array<uint8_t, 16> bytes{};
  kernels::ShortIndices indices{};

  /// The most frequent of w's, a contiguous bfloat16 matrix, by a sample of its rows. None if more
  /// than one number in 256 of them has another: then 12 bits don't pay.
  static std::optional<UpperBytes> choose(const at::Tensor& w);
};

/// The numbers of a matrix in kShortBFloat16 panels beside the panels themselves.
class ShortBFloat16 {
 public:
  /// A number whose upper byte is none of those; its panel has 0 there.
  struct Exception {
    /// Where in the panel as one of bfloat16.
    uint32_t place = 0;
    uint16_t bits = 0;
  };

  explicit ShortBFloat16(const UpperBytes& upper) : upper_(upper) {}

  /// Writes panel `index` of w, a contiguous bfloat16 matrix, and returns its exceptions.
  std::vector<Exception> write(const kernels::PanelKernel& kernel, const at::Tensor& w,
                               int64_t index, uint8_t* panel) const;
  /// Keeps the exceptions of all panels, in order.
  void keep(const std::vector<std::vector<Exception>>& by_panel);
  /// Panel `index` of w as one of bfloat16: room for all its numbers.
  void read(const kernels::PanelKernel& kernel, const kernels::Panels& w, int64_t index,
            uint16_t* to) const;
  /// y += x w^T of the exceptions of panels [first, first + count); y.data is the first panel's
  /// first row.
  void add_exceptions(int64_t first, int64_t count, const kernels::DenseInputs& x,
                      const kernels::PanelOutputs& y) const;
  /// Row `row` of w in float32.
  void read_row(const kernels::Panels& w, int64_t row, float* to) const;
  const uint8_t* upper_bytes() const { return upper_.bytes.data(); }
  int64_t num_bytes() const;

 private:
  /// Rows of a panel that is written.
  struct WrittenRows {
    const uint16_t* bits;
    int64_t stride, count;
  };

  /// Columns from `first` on that lie together.
  void write_columns(const WrittenRows& from, int64_t first, uint8_t* panel,
                     std::vector<Exception>& exceptions) const;
  std::span<const Exception> exceptions_of(int64_t panel) const;

  UpperBytes upper_;
  std::vector<Exception> exceptions_;
  /// Of each panel, and one more.
  std::vector<int64_t> first_exceptions_;
};

}  // namespace weft::quant
