#include "weft/models/quantize/rounding.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "weft/core/error.h"
#include "weft/quant/one_thread.h"
#include "weft/quant/quantizers/feedback.h"
#include "weft/quant/quantizers/gguf_quantize.h"

namespace weft::models {
namespace {

// Of the mean square of the inputs. Source: arXiv:2210.17323.
constexpr double kDamping = 0.01;

}  // namespace

Rounding::Rounding(const Importance& importance, const std::string& tensor,
                   const TensorMatrix& matrix, const RoundingOptions& options)
    : squares_(importance.of(tensor, matrix)) {
  const at::Tensor& scales = options.scales;
  if (scales.defined() && squares_.defined()) squares_ = squares_ / scales.square();
  if (!options.has_feedback) return;
  products_ = importance.products_of(tensor);
  if (!products_.defined()) return;
  core::check<core::FormatError>(products_.size(0) == matrix.columns,
                                 "importance matrix: ", core::quote(tensor),
                                 ", expected products of ", matrix.columns, " columns, got ",
                                 products_.size(0), "; it is of another model");
  if (scales.defined()) products_ = products_ / scales / scales.unsqueeze(1);
  const quant::OneThread one_thread;
  try {
    factor_ = quant::feedback_factor(products_, kDamping);
  } catch (const core::ShapeError& error) {
    core::fail<core::FormatError>("importance matrix: ", core::quote(tensor), ": ", error.what(),
                                  "; make it again");
  }
}

at::Tensor Rounding::blocks(core::Dtype dtype, const at::Tensor& rows) const {
  const bool is_nearly_exact = dtype == core::Dtype::kQ8_0;
  if (!factor_.defined() || is_nearly_exact) {
    return quant::quantize_to_blocks(dtype, rows, squares_);
  }
  return quant::quantize_with_feedback(dtype, rows, factor_);
}

quant::AffineTensor Rounding::affine(const quant::AffineForm& form, const at::Tensor& rows) const {
  if (factor_.defined()) return quant::fit_affine_with_feedback(rows, form, factor_);
  return quant::fit_affine(rows, form, squares_);
}

double Rounding::loss(const at::Tensor& rows, const at::Tensor& rounded) const {
  const quant::OneThread one_thread;
  const at::Tensor errors = rounded - rows;
  const double sum = (errors.matmul(products_) * errors).sum(at::kDouble).item<double>();
  return sum / 2 / static_cast<double>(rows.size(0));
}

double Rounding::changed_share(const at::Tensor& rows, const at::Tensor& rounded) const {
  const quant::OneThread one_thread;
  const at::Tensor counts = squares_.defined() ? squares_ : at::ones({rows.size(1)});
  const auto energy = [&](const at::Tensor& values) {
    return (values.square() * counts).sum(at::kDouble).item<double>();
  };
  return energy(rounded - rows) / std::max(energy(rows), 1e-30);
}

}  // namespace weft::models
