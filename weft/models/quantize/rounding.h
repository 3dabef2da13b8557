#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "weft/core/dtype.h"
#include "weft/models/quantize/importance.h"
#include "weft/quant/quantizers/affine_rounding.h"

namespace weft::models {

/// What is done with one tensor's importances.
struct RoundingOptions {
  /// By which the columns were multiplied, and inputs are divided, float32 [in]; undefined: 1.
  at::Tensor scales = {};
  /// Errors are fed back where there are products.
  bool has_feedback = true;
};

/// How the rows of one tensor are rounded: with error feedback if the importances have products of
/// its inputs, else by squares alone. The same on any number of threads.
class Rounding {
 public:
  /// Throws FormatError for importances of other columns or matrices, and for products that no
  /// inputs have.
  Rounding(const Importance& importance, const std::string& tensor, const TensorMatrix& matrix,
           const RoundingOptions& options = {});

  /// quant::quantize_to_blocks, or with feedback. Throws as these.
  at::Tensor blocks(core::Dtype dtype, const at::Tensor& rows) const;
  /// quant::fit_affine, or with feedback. Throws as these.
  quant::AffineTensor affine(const quant::AffineForm& form, const at::Tensor& rows) const;
  /// What each row of `rounded` adds to the loss of a token on average, by products.
  double loss(const at::Tensor& rows, const at::Tensor& rounded) const;
  /// By squares: the share of the square of what the rows return that `rounded` changes.
  double changed_share(const at::Tensor& rows, const at::Tensor& rounded) const;

 private:
  at::Tensor squares_;
  at::Tensor products_;
  at::Tensor factor_;
};

}  // namespace weft::models
