#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <vector>

#include "weft/quant/affine.h"
#include "weft/quant/kernels/panel_kernel.h"

namespace weft::quant {

/// An affine matrix in the order in which the processor multiplies it by activations of eight bits:
/// kernels::Panels says how. The numbers are the affine matrix's own.
struct PanelMatrix {
  int64_t out_features = 0;
  int64_t in_features = 0;
  int64_t bits = 0;
  bool is_symmetric = false;
  /// What activations are rounded to on their way into a product: codes of 8 or 16 bits.
  int64_t activation_bits = 8;
  /// uint8, one dim.
  at::Tensor data;

  int64_t num_bytes() const { return data.numel(); }
};

/// Whether `w` can be kept so without loss: 4 or 8 bits, scales and offsets float16, and quant
/// groups that are whole blocks of kBlockColumns.
bool fits_panels(const AffineTensor& w);

/// Throws ShapeError unless fits_panels(w), and activation_bits are 8 or 16.
PanelMatrix to_panels(const AffineTensor& w, int64_t activation_bits = 8);
/// The same matrix again, with groups of kBlockColumns.
AffineTensor from_panels(const PanelMatrix& w);
/// Rows by `indices` (int64, any shape): [..., in] float32. Throws ShapeError for others.
at::Tensor panel_rows(const PanelMatrix& w, const at::Tensor& indices);

/// Rows of activations, each block of kBlockColumns rounded to codes of 8 or 16 bits and a scale,
/// in memory that the next rows will have. Source: Dettmers et al. 2022, arXiv:2208.07339 (absmax
/// rounding), per block.
class RoundedRows {
 public:
  /// Codes have 8 bits or 16.
  explicit RoundedRows(int64_t bits = 8) : bits_(bits) {}
  /// x: `rows` rows of `in` floats, `stride` apart. Throws ShapeError unless `in` is a multiple of
  /// kBlockColumns.
  void round(const kernels::PanelKernel& kernel, const float* x, int64_t rows, int64_t in,
             int64_t stride);
  kernels::RoundedInputs view() const {
    return {codes_.data(), bits_ == 16 ? lower_codes_.data() : nullptr, scales_.data(),
            sums_.data(), rows_};
  }
  int64_t bits() const { return bits_; }
  int64_t in_features() const { return in_; }

 private:
  int64_t bits_;
  std::vector<int8_t> codes_;
  std::vector<int8_t> lower_codes_;
  std::vector<float> scales_;
  std::vector<float> sums_;
  int64_t rows_ = 0;
  int64_t in_ = 0;
};

/// One of several matrices that the same rows are multiplied by; rows of y are `stride` apart.
struct PanelProduct {
  const PanelMatrix* w = nullptr;
  float* y = nullptr;
  int64_t stride = 0;
};

/// The least stride of a product's rows: whole panels, of which what is beyond `out` gets zeros.
int64_t padded_out(const PanelMatrix& w);
/// y = x w^T for every product, shared out over threads as one, whatever the matrices'
/// activation_bits. Throws ShapeError unless they have x's in_features.
void multiply(const kernels::PanelKernel& kernel, const RoundedRows& x,
              std::span<const PanelProduct> products);

/// y = x w^T, x rounded as w.activation_bits says. x: [...,
/// in], floating. Returns [..., out] in x's dtype. Does not record gradients. Runs on the fastest
/// kernel of this machine. Throws ShapeError if x's last dim is not `in`.
at::Tensor panel_matmul(const at::Tensor& x, const PanelMatrix& w);
/// The same on a given kernel.
at::Tensor panel_matmul_on(const kernels::PanelKernel& kernel, const at::Tensor& x,
                           const PanelMatrix& w);

}  // namespace weft::quant
