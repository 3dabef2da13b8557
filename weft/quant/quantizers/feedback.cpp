#include "weft/quant/quantizers/feedback.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "weft/core/error.h"
#include "weft/quant/quantize_groups.h"
#include "weft/quant/quantizers/round_blocks.h"

namespace weft::quant {
namespace {

using core::check;
using core::ShapeError;

constexpr const char* kFeedback = "quant.quantize_with_feedback";

}  // namespace

at::Tensor feedback_factor(const at::Tensor& products, double damping) {
  const bool is_square = products.defined() && products.dim() == 2 &&
                         products.size(0) == products.size(1) && products.is_floating_point();
  check<ShapeError>(is_square, "quant.feedback_factor: products, expected floating [in, in]");
  at::Tensor sums = products.to(at::kDouble);
  check<ShapeError>(at::isfinite(sums).all().item<bool>(),
                    "quant.feedback_factor: products, expected finite numbers");
  const double mean = std::max(sums.diagonal().mean().item<double>(), 1e-30);
  sums = sums + at::eye(sums.size(0), sums.options()) * (damping * mean);
  const auto [lower, failed] = at::linalg_cholesky_ex(sums);
  check<ShapeError>(failed.item<int>() == 0,
                    "quant.feedback_factor: products, expected a positive semidefinite matrix");
  const at::Tensor inverse = at::cholesky_inverse(lower);
  return at::linalg_cholesky(inverse, true).to(at::kFloat).contiguous();
}

at::Tensor check_factor(const at::Tensor& factor, int64_t in, const char* where) {
  check<ShapeError>(factor.dim() == 2 && factor.size(0) == in && factor.size(1) == in, where,
                    ": factor, expected [", in, ", ", in, "], got ",
                    core::list_text(factor.sizes()));
  return factor.to(at::kFloat).contiguous();
}

at::Tensor quantize_with_feedback(core::Dtype dtype, const at::Tensor& w,
                                  const at::Tensor& factor) {
  const BlockForm* form = find_block_form(dtype);
  check<core::InternalError>(form != nullptr, kFeedback, ": ", core::info(dtype).name,
                             ", expected a type of quantizable_block_types()");
  const at::Tensor values = check_quantizable(w, 8, form->block, kFeedback);
  const at::Tensor upper = check_factor(factor, values.size(1), kFeedback);
  const int64_t block_bytes = core::info(dtype).block_bytes;
  const int64_t blocks = values.size(1) / form->block;
  at::Tensor bytes = at::empty({values.size(0), blocks * block_bytes}, at::kByte);
  auto* const to = bytes.mutable_data_ptr<uint8_t>();
  const bool is_finite = fit_blocks_with_feedback(
      *form, values, upper, [&](int64_t row, int64_t block, const FittedBlock& fitted) {
        encode_block(*form, fitted, to + (row * blocks + block) * block_bytes);
      });
  check<ShapeError>(is_finite, kFeedback, ": w, expected numbers whose ", core::info(dtype).name,
                    " scales float16 holds, got larger ones; use another type");
  return bytes;
}

}  // namespace weft::quant
