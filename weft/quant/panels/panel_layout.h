#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "weft/quant/affine.h"
#include "weft/quant/kernels/panel_kernel.h"
#include "weft/quant/panels/short_bfloat16.h"

namespace weft::quant {

/// A matrix in the order in which the processor multiplies it by activations: kernels::Panels says
/// how. The numbers are those of the matrix that it was made of.
struct PanelMatrix {
  int64_t out_features = 0;
  int64_t in_features = 0;
  kernels::PanelForm form;
  /// What activations are rounded to on their way into a product with codes: 8 or 16 bits. Where
  /// bfloat16 takes the place of codes, 16 stand for two such numbers (kernels::BFloat16Parts) and
  /// 8 for one; plain numbers are multiplied so, too.
  int64_t activation_bits = 8;
  /// Long sequences are not rounded to bfloat16 where that is faster: a row's product has the same
  /// bits in a sequence of any length.
  bool is_exact = false;
  /// uint8, one dim.
  at::Tensor data;
  /// What belongs to panels of kShortBFloat16; null for others.
  std::shared_ptr<const ShortBFloat16> short_numbers;

  int64_t num_bytes() const {
    return data.numel() + (short_numbers == nullptr ? 0 : short_numbers->num_bytes());
  }
};

/// What a product reads of a matrix; valid while its data lives. In one place, because weights push
/// all else out of the caches between a matrix's uses.
struct PanelView {
  PanelView() = default;
  explicit PanelView(const PanelMatrix& w);

  kernels::Panels panels;
  /// Of the matrix's panels those that are multiplied.
  int64_t first_panel = 0;
  int64_t num_panels = 0;
  const ShortBFloat16* short_numbers = nullptr;

  /// Of this view's rows those from `first` on, both whole panels: for quant::multiply.
  PanelView rows(int64_t first, int64_t count) const {
    PanelView some = *this;
    some.first_panel += first / kernels::kPanelRows;
    some.num_panels = count / kernels::kPanelRows;
    return some;
  }

  int64_t in_features() const { return panels.num_blocks * kernels::kBlockColumns; }
  /// The least stride of a product's rows: whole panels, in which columns beyond `out` get zeros.
  int64_t padded_out() const { return num_panels * kernels::kPanelRows; }
};

/// Whether `w` can be kept so: rows of whole blocks of kBlockColumns, and quant groups of half a
/// block or of whole ones. Codes keep their bits, but those of 7 become 8.
/// Scales that are products of a small number and one of 256 columns, as in GGUF's K-quants, are
/// kept as such (find_two_levels), others in their type.
bool fits_panels(const AffineTensor& w);
/// The same for plain numbers [out, in]: float32, float16 or bfloat16.
bool fits_panels(const at::Tensor& w);

/// Throws ShapeError unless fits_panels(w), and activation_bits are 8 or 16.
PanelMatrix to_panels(const AffineTensor& w, int64_t activation_bits = 8);
/// How bfloat16 lies in panels: in 12 bits where that loses nothing (UpperBytes), or always as it
/// is. Products of the first kind add some numbers last, which ones depends on the matrix.
enum class HalfPanels { kShortest, kPlain };

/// Throws ShapeError unless fits_panels(w).
PanelMatrix to_panels(const at::Tensor& w, HalfPanels halves = HalfPanels::kShortest);

/// As the kernels see it; valid while w's data lives.
kernels::Panels view_of(const PanelMatrix& w);

/// The whole matrix [out, in] in float32: the values of what it was made of, bit for bit.
at::Tensor panel_values(const PanelMatrix& w);
/// Row `row`, which w has, to `to`: in_features numbers.
void read_panel_row(const PanelMatrix& w, int64_t row, float* to);
/// Rows by `indices` (int64, any shape): [..., in] float32. Throws ShapeError for others.
at::Tensor panel_rows(const PanelMatrix& w, const at::Tensor& indices);

}  // namespace weft::quant
