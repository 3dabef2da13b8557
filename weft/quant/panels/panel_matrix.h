#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "weft/core/memory/scratch.h"
#include "weft/quant/panels/panel_layout.h"

namespace weft::quant {

/// Rows of activations as products take them, in memory that the next rows will have: with codes,
/// each block of kBlockColumns is rounded to codes of 8 or 16 bits and a scale. Source: Dettmers et
/// al. 2022, arXiv:2208.07339 (absmax rounding), per block.
class PanelInputs {
 public:
  /// The forms that the matrices which will be multiplied need.
  struct Wants {
    /// Bits of codes: 8, 16, or 0 for none.
    int64_t code_bits = 0;
    /// The numbers themselves, for plain matrices.
    bool numbers = false;
    /// Numbers for matrices of bfloat16: long sequences are rounded to it where the kernel has such
    /// products.
    bool bfloat16 = false;
    /// With what rounding to bfloat16 takes away as a second number.
    bool both_parts = false;
    /// PanelMatrix::is_exact.
    bool exact = false;

    /// The form that a product with `w` needs.
    static Wants of(const PanelMatrix& w);
    /// The forms that both need; the larger of two sizes of codes.
    Wants operator|(const Wants& other) const;
  };

  /// Sequences of so few rows are multiplied as codes, and their numbers as they are, each with the
  /// bits that it has alone. Longer ones may be rounded to bfloat16.
  static constexpr int64_t kExactRows = 16;

  PanelInputs() = default;
  explicit PanelInputs(const Wants& wants) : wants_(wants) {}
  /// Rows that are taken from here on have these forms, too.
  void add_wants(const Wants& wants) { wants_ = wants_ | wants; }

  /// How many rows of `in` floats, of sequences of `tokens` rows each.
  struct Shape {
    int64_t rows = 0;
    int64_t in = 0;
    int64_t tokens = 0;
    /// Rows that there is to be memory for, if more than `rows`.
    int64_t room = 0;
    /// Groups of rows that are multiplied by matrices of their own: where each begins, ascending
    /// from 0, none empty. None: all rows are group 0.
    std::span<const int64_t> starts = {};
  };
  /// Gives a row: where it lies, or `room`, after writing it there: room for one, of the calling
  /// thread, which then takes the next row.
  using RowSource = c10::function_ref<const float*(int64_t row, float* room)>;

  /// Takes each row once; several threads ask for rows. Throws ShapeError unless shape.in is a
  /// multiple of kBlockColumns.
  void take(const kernels::PanelKernel& kernel, const Shape& shape, RowSource row_of);

  /// Rows from one multiple of this to the next lie together, after the rows before them.
  static constexpr int64_t kRowRun = 16;
  /// The same, but rows [first, first + count) alone are taken, first a multiple of kRowRun; the
  /// others are the caller's to write to memory() before the next product.
  void take_part(const kernels::PanelKernel& kernel, const Shape& shape, int64_t first,
                 int64_t count, RowSource row_of);
  /// One of the forms that the rows are held in: where the first lies, and the bytes of each.
  struct Memory {
    std::byte* data = nullptr;
    int64_t row_bytes = 0;
  };
  std::vector<Memory> memory() const;

  /// Takes rows that `from` holds, without rounding them again: row i is its row rows[i]. `from`
  /// must be of one group and hold the forms that are wanted here, of sequences as long. `starts`:
  /// as Shape has them. Throws ShapeError for forms or rows that it has not.
  void take_rows(const kernels::PanelKernel& kernel, const PanelInputs& from,
                 std::span<const int64_t> rows, std::span<const int64_t> starts);

  /// A group's rows in each form.
  kernels::RoundedInputs codes(int64_t group = 0) const;
  kernels::DenseInputs numbers(int64_t group = 0) const {
    return {numbers_.data() + start_of(group) * in_, in_, num_rows(group)};
  }
  kernels::BFloat16Inputs bfloat16(int64_t group = 0) const {
    const int64_t first = start_of(group) * in_;
    return {bfloat16_.data() + first, num_rows(group),
            wants_.both_parts ? bfloat16_low_.data() + first : nullptr};
  }
  /// Whether each sequence has the bits that it has alone.
  bool is_exact() const { return is_exact_; }
  /// Whether matrices of bfloat16 are multiplied by bfloat16().
  bool is_bfloat16() const { return is_bfloat16_; }
  /// Whether matrices of codes are multiplied by codes(); else they are by bfloat16().
  bool has_codes() const { return has_codes_; }
  const Wants& wants() const { return wants_; }
  int64_t num_rows() const { return rows_; }
  int64_t num_rows(int64_t group) const { return start_of(group + 1) - start_of(group); }
  int64_t in_features() const { return in_; }

 private:
  /// Where a row's blocks lie among those of all rows, in tiles.
  struct Place {
    int64_t first, stride;
  };
  Place place_of(int64_t row, int64_t tile) const;
  int64_t start_of(int64_t group) const { return starts_[static_cast<size_t>(group)]; }
  void set_groups(int64_t rows, std::span<const int64_t> starts);
  void make_room(const kernels::PanelKernel& kernel, int64_t rows);
  bool has_numbers() const { return wants_.numbers || (wants_.bfloat16 && !is_bfloat16_); }
  bool has_forms_of(const PanelInputs& other) const;
  void copy_row(const kernels::PanelKernel& kernel, const PanelInputs& from, int64_t from_row,
                int64_t row);
  void take_row(const kernels::PanelKernel& kernel, const float* x, int64_t row);

  Wants wants_;
  core::Scratch<int8_t> codes_;
  core::Scratch<int8_t> lower_codes_;
  core::Scratch<float> scales_;
  core::Scratch<float> sums_;
  core::Scratch<float> numbers_;
  core::Scratch<uint16_t> bfloat16_;
  core::Scratch<uint16_t> bfloat16_low_;
  bool is_exact_ = true;
  bool is_bfloat16_ = false;
  bool has_codes_ = false;
  int64_t rows_ = 0;
  int64_t in_ = 0;
  /// Of each group, and the end of the last.
  std::vector<int64_t> starts_ = {0, 0};
};

/// One of several matrices that rows are multiplied by; rows of y are `stride` apart.
struct PanelProduct {
  PanelView w;
  float* y = nullptr;
  int64_t stride = 0;
  /// Whose rows; y is the first one's.
  int64_t group = 0;
};

/// y = x w^T for every product, shared out over threads as one, by rows: groups may be of any
/// sizes. Codes of x are what x has, whatever the matrices' activation_bits. Throws ShapeError
/// unless they have x's in_features and want what x has.
void multiply(const kernels::PanelKernel& kernel, const PanelInputs& x,
              std::span<const PanelProduct> products);

/// y = x w^T, x rounded as w.activation_bits says if w has codes, or as PanelInputs::kExactRows
/// says. x: [..., T, in] or [in], floating; T: rows of a sequence. Returns [..., T, out] in x's
/// dtype. Does not record gradients. Runs on the fastest kernel of this machine.
/// Throws ShapeError if x's last dim is not `in`.
at::Tensor panel_matmul(const at::Tensor& x, const PanelMatrix& w);
/// The same on a given kernel.
at::Tensor panel_matmul_on(const kernels::PanelKernel& kernel, const at::Tensor& x,
                           const PanelMatrix& w);

}  // namespace weft::quant
