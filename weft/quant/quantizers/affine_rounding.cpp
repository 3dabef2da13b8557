#include "weft/quant/quantizers/affine_rounding.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "weft/core/error.h"
#include "weft/quant/code_stream.h"
#include "weft/quant/quantize_groups.h"
#include "weft/quant/quantizers/feedback.h"
#include "weft/quant/quantizers/gguf_quantize.h"
#include "weft/quant/quantizers/round_blocks.h"
#include "weft/quant/view.h"

namespace weft::quant {
namespace {

using core::check;
using core::InternalError;
using core::ShapeError;

constexpr const char* kAffineRounding = "quant.round_affine";

at::Tensor check_affine_rows(const at::Tensor& w, const AffineForm& form) {
  check_bits(form.bits, kAffineRounding);
  check_scale_dtype(form.scale_dtype, kAffineRounding);
  check<ShapeError>(form.group_size <= kMaxGroup && form.group_size % 8 == 0, kAffineRounding,
                    ": group size, expected a multiple of 8 up to ", kMaxGroup, ", got ",
                    form.group_size);
  return check_quantizable(w, form.bits, form.group_size, kAffineRounding);
}

BlockForm block_form(const AffineForm& form) {
  const int most = (1 << form.bits) - 1, middle = (most + 1) / 2;
  const bool is_middle = form.offsets == Offsets::kMiddle;
  BlockForm block;
  block.block = block.group = static_cast<int>(form.group_size);
  block.codes = {most, is_middle ? static_cast<float>(middle) : 0};
  block.has_offsets = !is_middle;
  block.number_type = form.scale_dtype;
  block.has_zero_points = form.offsets == Offsets::kZeroPoints;
  return block;
}

// Codes, scales and offsets of a matrix, group by group in any order.
class AffineParts {
 public:
  AffineParts(const at::Tensor& values, const AffineForm& form)
      : form_(form),
        in_(values.size(1)),
        groups_(in_ / form.group_size),
        codes_(at::empty(values.sizes(), at::kByte)),
        scales_(at::empty({values.size(0), groups_}, at::kFloat)),
        offsets_(at::empty_like(scales_)),
        code_(codes_.mutable_data_ptr<uint8_t>()),
        scale_(scales_.mutable_data_ptr<float>()),
        offset_(offsets_.mutable_data_ptr<float>()) {}

  // Of different groups on several threads.
  void take(int64_t row, int64_t group, const FittedBlock& fitted) const {
    std::copy_n(fitted.codes.data(), form_.group_size,
                code_ + row * in_ + group * form_.group_size);
    scale_[row * groups_ + group] = fitted.scale;
    offset_[row * groups_ + group] = fitted.offset;
  }

  AffineTensor result() const {
    AffineTensor w;
    w.bits = form_.bits;
    w.group_size = form_.group_size;
    const int64_t row_bytes = in_ * form_.bits / 8;
    w.packed = at::empty({codes_.size(0), row_bytes}, at::kByte);
    for (int64_t row = 0; row < codes_.size(0); ++row) {
      pack_codes(
          {codes_.const_data_ptr<uint8_t>() + row * in_, static_cast<size_t>(in_)}, form_.bits,
          {w.packed.mutable_data_ptr<uint8_t>() + row * row_bytes, static_cast<size_t>(row_bytes)});
    }
    const bool has_zero_points = form_.offsets == Offsets::kZeroPoints;
    const at::ScalarType type = has_zero_points ? at::kFloat : form_.scale_dtype;
    w.scales = scales_.to(type);
    if (form_.offsets != Offsets::kMiddle) w.offsets = offsets_.to(type);
    return w;
  }

 private:
  const AffineForm& form_;
  int64_t in_, groups_;
  at::Tensor codes_, scales_, offsets_;
  uint8_t* code_;
  float *scale_, *offset_;
};

void check_fitted(bool is_finite) {
  check<ShapeError>(is_finite, kAffineRounding,
                    ": w, expected numbers whose scales the type of scales holds, got larger ones; "
                    "use float32 or bfloat16 scales");
}

// Of a group of zeros: the type's distance from 1 to the next number, as torch.finfo has it.
float least_scale(at::ScalarType type) {
  if (type == at::kFloat) return std::numeric_limits<float>::epsilon();
  return type == at::kHalf ? 0x1p-10F : 0x1p-7F;
}

// Source: compressed-tensors' calculate_qparams. The range holds 0, and codes are rounded half to
// even with the scale as it is stored; a group of zeros has the middle as its zero point.
FittedBlock fit_range(const AffineForm& form, const float* values) {
  const float most = static_cast<float>((1 << form.bits) - 1);
  const auto [low, high] = std::minmax_element(values, values + form.group_size);
  const float least = std::min(*low, 0.0F), largest = std::max(*high, 0.0F);
  const bool is_middle = form.offsets == Offsets::kMiddle;
  const float range = is_middle ? 2 * std::max(-least, largest) : largest - least;
  FittedBlock fitted;
  fitted.scale = as_stored(form.scale_dtype, range / most);
  const bool is_empty = fitted.scale == 0;
  if (is_empty) fitted.scale = least_scale(form.scale_dtype);
  const float at_least = std::clamp(std::nearbyint(-least / fitted.scale), 0.0F, most);
  const float zero = is_middle || is_empty ? (most + 1) / 2 : at_least;
  if (!is_middle) fitted.offset = -fitted.scale * zero;
  for (int64_t i = 0; i < form.group_size; ++i) {
    const float code = std::nearbyint(values[i] / fitted.scale + zero);
    fitted.codes[static_cast<size_t>(i)] = static_cast<uint8_t>(std::clamp(code, 0.0F, most));
  }
  return fitted;
}

}  // namespace

AffineTensor round_in_range(const at::Tensor& w, const AffineForm& form) {
  if (form.offsets == Offsets::kAny) {
    return quantize_affine(w, form.bits, form.group_size, form.scale_dtype);
  }
  const at::Tensor values = check_affine_rows(w, form);
  const AffineParts parts(values, form);
  const float* const from = values.const_data_ptr<float>();
  const int64_t in = values.size(1);
  std::atomic<bool> is_finite = true;
  at::parallel_for(0, values.size(0), rows_per_thread(in), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t group = 0; group < in / form.group_size; ++group) {
        const FittedBlock fitted = fit_range(form, from + row * in + group * form.group_size);
        if (!std::isfinite(fitted.scale)) is_finite = false;
        parts.take(row, group, fitted);
      }
    }
  });
  check_fitted(is_finite);
  return parts.result();
}

AffineTensor fit_affine(const at::Tensor& w, const AffineForm& form, const at::Tensor& importance) {
  const at::Tensor values = check_affine_rows(w, form);
  check_importance(importance, values.size(1), kAffineRounding);
  const AffineParts parts(values, form);
  const auto take = [&](int64_t row, int64_t group, const FittedBlock& fitted) {
    parts.take(row, group, fitted);
  };
  const at::Tensor weights = error_weights(values, importance).contiguous();
  check_fitted(fit_blocks(block_form(form), values, weights, take));
  return parts.result();
}

AffineTensor fit_affine_with_feedback(const at::Tensor& w, const AffineForm& form,
                                      const at::Tensor& factor) {
  const at::Tensor values = check_affine_rows(w, form);
  const at::Tensor upper = check_factor(factor, values.size(1), kAffineRounding);
  const AffineParts parts(values, form);
  const auto take = [&](int64_t row, int64_t group, const FittedBlock& fitted) {
    parts.take(row, group, fitted);
  };
  check_fitted(fit_blocks_with_feedback(block_form(form), values, upper, take));
  return parts.result();
}

at::Tensor zero_points(const AffineTensor& w) {
  check<InternalError>(w.offsets.defined(), "quant.zero_points: expected offsets, got none");
  const at::Tensor scales = w.scales.to(at::kFloat);
  const at::Tensor places = at::where(scales == 0, at::zeros_like(scales), -w.offsets / scales);
  return places.round().to(at::kByte);
}

}  // namespace weft::quant
