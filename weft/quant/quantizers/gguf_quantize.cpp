#include "weft/quant/quantizers/gguf_quantize.h"

#include <ATen/ATen.h>

#include "weft/core/error.h"
#include "weft/quant/one_thread.h"
#include "weft/quant/quantize_groups.h"
#include "weft/quant/quantizers/round_blocks.h"

namespace weft::quant {
namespace {

using core::check;
using core::ShapeError;

constexpr const char* kWhere = "quant.quantize_to_blocks";
// Of the mean importance, so that columns which no calibration text touched are rounded all the
// same.
constexpr double kLeastImportance = 1e-4;

}  // namespace

std::vector<core::Dtype> quantizable_block_types() {
  using core::Dtype;
  return {Dtype::kQ4_0, Dtype::kQ4_1, Dtype::kQ5_0, Dtype::kQ5_1, Dtype::kQ8_0,  Dtype::kQ2K,
          Dtype::kQ3K,  Dtype::kQ4K,  Dtype::kQ5K,  Dtype::kQ6K,  Dtype::kIQ4NL, Dtype::kIQ4XS};
}

void check_importance(const at::Tensor& importance, int64_t in, const char* where) {
  if (!importance.defined()) return;
  check<ShapeError>(
      importance.scalar_type() == at::kFloat && importance.dim() == 1 && importance.size(0) == in,
      where, ": importance, expected float32 [", in, "], got ",
      c10::toString(importance.scalar_type()), " ", core::list_text(importance.sizes()));
  const bool is_right =
      at::isfinite(importance).all().item<bool>() && importance.ge(0).all().item<bool>();
  check<ShapeError>(is_right, where, ": importance, expected finite numbers from 0");
}

at::Tensor error_weights(const at::Tensor& w, const at::Tensor& importance) {
  const OneThread one_thread;
  const at::Tensor squares = w.to(at::kFloat).square();
  const at::Tensor weights = (squares + squares.mean(1, true)).sqrt();
  if (!importance.defined()) return weights;
  return weights * (importance + importance.mean() * kLeastImportance);
}

at::Tensor quantize_to_blocks(core::Dtype dtype, const at::Tensor& w,
                              const at::Tensor& importance) {
  const BlockForm* form = find_block_form(dtype);
  check<core::InternalError>(form != nullptr, kWhere, ": ", core::info(dtype).name,
                             ", expected a type of quantizable_block_types()");
  const at::Tensor values = check_quantizable(w, 8, form->block, kWhere);
  const int64_t in = values.size(1), blocks = in / form->block;
  check_importance(importance, in, kWhere);
  const at::Tensor weights = error_weights(values, importance).contiguous();
  const int64_t block_bytes = core::info(dtype).block_bytes;
  at::Tensor bytes = at::empty({values.size(0), blocks * block_bytes}, at::kByte);
  auto* const to = bytes.mutable_data_ptr<uint8_t>();
  const bool is_finite = fit_blocks(
      *form, values, weights, [&](int64_t row, int64_t block, const FittedBlock& fitted) {
        encode_block(*form, fitted, to + (row * blocks + block) * block_bytes);
      });
  check<ShapeError>(is_finite, kWhere, ": w, expected numbers whose ", core::info(dtype).name,
                    " scales float16 holds, got larger ones; use another type");
  return bytes;
}

}  // namespace weft::quant
