#include "weft/quant/quantizers/feedback.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "weft/core/error.h"
#include "weft/quant/quantize_groups.h"
#include "weft/quant/quantizers/block_fit.h"
#include "weft/quant/view.h"

namespace weft::quant {
namespace {

using core::check;
using core::ShapeError;

constexpr const char* kFeedback = "quant.quantize_with_feedback";

// Columns that are corrected together: with their part of the factor they stay in the cache.
constexpr int64_t kTile = 512;

struct Rows {
  int64_t first, last;
};

// One block of columns at a time. Sums have one order, whatever the number of rows and threads.
class Feedback {
 public:
  Feedback(const BlockForm& form, const float* factor, const float* counts, int64_t in)
      : form_(form), factor_(factor), counts_(counts), in_(in) {}

  // `values` are the row's, from the block's first column, and are corrected within the block;
  // `errors` gets what later columns are corrected by, for each column of the block.
  FittedBlock round(int64_t column, float* values, float* errors) const {
    FittedBlock block = fit_block(form_, values, counts_ + column);
    for (int g = 0; g < form_.num_groups(); ++g) {
      const int first = g * form_.group;
      if (g > 0) {
        refit_group(form_, g, {values + first, counts_ + column + first, form_.group}, block);
      }
      for (int i = first; i < first + form_.group; ++i) {
        round_element(g, i, column, values, errors, block);
      }
    }
    return block;
  }

  // Takes the errors of a block off all columns behind it. `errors` are [out, block], `values`
  // [out, in].
  void correct_later(int64_t column, Rows rows, const float* errors, float* values) const {
    for (int64_t tile = column + form_.block; tile < in_; tile += kTile) {
      const int64_t width = std::min(kTile, in_ - tile);
      for (int64_t row = rows.first; row < rows.last; ++row) {
        float* const own = values + row * in_ + tile;
        for (int k = 0; k < form_.block; ++k) {
          const float error = errors[row * form_.block + k];
          const float* const factor = factor_ + (column + k) * in_ + tile;
          for (int64_t c = 0; c < width; ++c) own[c] -= error * factor[c];
        }
      }
    }
  }

 private:
  void round_element(int group, int i, int64_t column, float* values, float* errors,
                     FittedBlock& block) const {
    const float scale = block.group_scale(group), offset = block.group_offset(group);
    const uint8_t code = nearest_code(form_.codes, scale, offset, values[i]);
    block.codes[static_cast<size_t>(i)] = code;
    const float rounded = scale * point_of(form_.codes, code) + offset;
    const float* const row = factor_ + (column + i) * in_ + column;
    errors[i] = (values[i] - rounded) / row[i];
    for (int k = i + 1; k < form_.block; ++k) values[k] -= errors[i] * row[k];
  }

  const BlockForm& form_;
  const float* factor_;
  const float* counts_;
  int64_t in_;
};

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

at::Tensor quantize_with_feedback(core::Dtype dtype, const at::Tensor& w,
                                  const at::Tensor& factor) {
  const BlockForm* form = find_block_form(dtype);
  check<core::InternalError>(form != nullptr, kFeedback, ": ", core::info(dtype).name,
                             ", expected a type of quantizable_block_types()");
  at::Tensor values = check_quantizable(w, 8, form->block, kFeedback).clone();
  const int64_t out = values.size(0), in = values.size(1);
  check<ShapeError>(factor.dim() == 2 && factor.size(0) == in && factor.size(1) == in, kFeedback,
                    ": factor, expected [", in, ", ", in, "], got ",
                    core::list_text(factor.sizes()));
  const at::Tensor upper = factor.to(at::kFloat).contiguous();
  // An error of a column costs the square of what it is divided by.
  const at::Tensor counts = upper.diagonal().square().reciprocal().contiguous();
  const Feedback feedback(*form, upper.const_data_ptr<float>(), counts.const_data_ptr<float>(), in);
  const int64_t block_bytes = core::info(dtype).block_bytes, blocks = in / form->block;
  at::Tensor bytes = at::empty({out, blocks * block_bytes}, at::kByte);
  at::Tensor errors = at::empty({out, form->block}, at::kFloat);
  auto* const data = values.mutable_data_ptr<float>();
  auto* const lost = errors.mutable_data_ptr<float>();
  auto* const to = bytes.mutable_data_ptr<uint8_t>();
  std::atomic<bool> is_finite = true;
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t column = b * form->block;
    at::parallel_for(0, out, 1, [&](int64_t first, int64_t last) {
      for (int64_t row = first; row < last; ++row) {
        const FittedBlock block =
            feedback.round(column, data + row * in + column, lost + row * form->block);
        if (!std::isfinite(block.scale) || !std::isfinite(block.offset)) is_finite = false;
        encode_block(*form, block, to + (row * blocks + b) * block_bytes);
      }
      feedback.correct_later(column, {first, last}, lost, data);
    });
  }
  check<ShapeError>(is_finite, kFeedback, ": w, expected numbers whose ", core::info(dtype).name,
                    " scales float16 holds, got larger ones; use another type");
  return bytes;
}

}  // namespace weft::quant
