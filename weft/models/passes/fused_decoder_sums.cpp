// How a fused pass adds to the residual stream what the ranks' products sum up to.
#include <array>
#include <span>

#include "weft/core/profile.h"
#include "weft/dist/shared_sum.h"
#include "weft/models/passes/fused_decoder.h"
#include "weft/quant/kernels/panel_select.h"
#include "weft/quant/panels/ordered_product.h"

namespace weft::models {

// x += sum_ over the ranks, of this rank's own rows.
void FusedDecoder::add_own_sum(const Pass& pass) {
  group_.reduce_scatter_into(own_sum_, sum_);
  const auto* const sum = own_sum_.const_data_ptr<float>();
  for_rows(pass.own.count, width_, [&](int64_t row) {
    float* const x = pass.x + (pass.own.first + row) * width_;
    elements().add(x, sum + row * width_, x, width_);
  });
}

// Of all ranks' sum_, this rank's own rows.
float* FusedDecoder::sum_of_ranks(const Pass& pass) {
  if (pass.own.is_cut()) {
    group_.reduce_scatter_into(own_sum_, sum_);
  } else {
    group_.all_reduce(sum_);
  }
  return (pass.own.is_cut() ? own_sum_ : sum_).mutable_data_ptr<float>();
}

// x += scale * norm(sum + bias) of a sum that the ranks have, of this rank's own rows.
void FusedDecoder::add_whole(const Pass& pass, const Vector& bias, const Vector& norm, float* sum) {
  for_rows(pass.own.count, width_, [&](int64_t row) {
    float *const added = sum + row * width_, *const x = pass.x + (pass.own.first + row) * width_;
    add_bias(bias, added);
    if (norm.data != nullptr) norm_in_place(norm, added, 1);
    for (int64_t i = 0; i < width_; ++i) x[i] += residual_scale_ * added[i];
  });
}

// What was taken times the linear, whole, in one order for any number of ranks.
float* FusedDecoder::ordered_product(const Pass& pass, const char* part, const quant::PanelView& w,
                                     dist::OrderedSum& ordered) {
  const int64_t count = pass.rows() * width_;
  {
    const core::Profiled profiled(part);
    const quant::OrderedProduct product{w, {ordered.room(count), width_, count}};
    quant::multiply_ordered(quant::kernels::active_panel_kernel(), inputs_, std::span(&product, 1),
                            ordered.plan());
  }
  const core::Profiled profiled("all-reduce, residual");
  return ordered.sum(count);
}

// x += scale * norm(ranks' sum + bias) of what was taken times the linear.
void FusedDecoder::add_product(const Pass& pass, const Product& what, const Vector& bias,
                               const Vector& norm, dist::OrderedSum* ordered) {
  if (ordered != nullptr) {
    return add_whole(pass, bias, norm, ordered_product(pass, what.part, what.w, *ordered));
  }
  add_reduced(pass, bias, norm, [&](float* sum) {
    multiply(what.part, std::array{quant::PanelProduct{what.w, sum, width_}});
    low_rank_.add(what.adapters, sum, width_);
  });
}

// x += the ranks' sum of what `write` writes, and what the model makes of it.
void FusedDecoder::add_reduced(const Pass& pass, const Vector& bias, const Vector& norm,
                               Summand write) {
  const bool is_changed = norm.data != nullptr || residual_scale_ != 1;
  // Where the ranks share memory, few rows are written where the others read them.
  float* const room = pass.own.is_cut() || is_changed
                          ? nullptr
                          : dist::SharedSum(group_).room(pass.rows() * width_);
  float* const sum = room != nullptr ? room : sum_.mutable_data_ptr<float>();
  write(sum);
  const core::Profiled profiled("all-reduce, residual");
  if (is_changed) return add_whole(pass, bias, norm, sum_of_ranks(pass));
  const bool is_alone = group_.size() == 1;
  if (pass.own.is_cut()) {
    add_own_sum(pass);
  } else if (!is_alone) {
    dist::SharedSum(group_).add(*pass.x_BTD, sum);
  }
  if (!is_alone && bias.data == nullptr) return;
  for_rows(pass.own.count, width_, [&](int64_t row) {
    float* const x = pass.x + (pass.own.first + row) * width_;
    if (is_alone) elements().add(x, sum + row * width_, x, width_);
    add_bias(bias, x);
  });
}

}  // namespace weft::models
