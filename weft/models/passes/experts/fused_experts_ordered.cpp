// Mixtures of experts whose sums have the same bits on any number of ranks.
#include <algorithm>
#include <vector>

#include "weft/core/profile.h"
#include "weft/models/passes/experts/fused_experts.h"
#include "weft/quant/kernels/panel_select.h"
#include "weft/quant/panels/ordered_product.h"

namespace weft::models {

float* FusedExperts::run_ordered(const Layer& layer, int64_t tokens) {
  route(layer);
  const float* const shared =
      layer.shared ? run_shared_ordered(layer, *layer.shared, tokens) : nullptr;
  run_chosen_ordered(layer, tokens);
  float* const sum = add_up_ordered(layer);
  if (shared != nullptr) {
    const int64_t count = inputs_.num_rows() * width();
    std::transform(sum, sum + count, shared, sum, [](float a, float b) { return a + b; });
  }
  return sum;
}

float* FusedExperts::run_shared_ordered(const Layer& layer, const Expert& shared, int64_t tokens) {
  const core::Profiled profiled("shared expert");
  take_shared_hidden(layer, shared, tokens);
  dist::OrderedSum& ordered = *layer.ordered.shared_features;
  const int64_t rows = inputs_.num_rows(), count = rows * width();
  const quant::OrderedProduct product{shared.down, {ordered.room(count), width(), count}};
  quant::multiply_ordered(quant::kernels::active_panel_kernel(), hidden_, std::span(&product, 1),
                          ordered.plan());
  float* const sum = ordered.sum(count);
  for (int64_t row = 0; row < rows; ++row) {
    float* const own = sum + row * width();
    if (shared.down_bias != nullptr) {
      std::transform(own, own + width(), shared.down_bias, own,
                     [](float a, float b) { return a + b; });
    }
    scale_shared(layer, row, own);
  }
  return sum;
}

// Afterwards out_ has what the experts that this rank holds, or has a part of, make of their rows,
// whole. Where ranks share each expert all have the same rows, else a rank's sums are its own.
void FusedExperts::run_chosen_ordered(const Layer& layer, int64_t tokens) {
  const core::Profiled profiled("experts");
  if (routing_.rows().empty()) return;
  take_chosen(layer, tokens);
  dist::OrderedSum& ordered = *layer.ordered.features;
  const auto nodes = static_cast<int64_t>(ordered.plan().nodes.size());
  const auto rows = static_cast<int64_t>(routing_.rows().size());
  const int64_t count = rows * width();
  float* const out = out_.of(nodes * rows, width());
  ordered_products_.clear();
  for (size_t i = 0; i < routing_.active().size(); ++i) {
    const Expert& expert = layer.experts[static_cast<size_t>(routing_.active()[i])];
    float* const own = out + routing_.starts()[i] * width();
    ordered_products_.push_back({expert.down, {own, width(), count}, static_cast<int64_t>(i)});
  }
  quant::multiply_ordered(quant::kernels::active_panel_kernel(), hidden_, ordered_products_,
                          ordered.plan());
  ordered.sum_in_place(out, count);
}

float* FusedExperts::add_up_ordered(const Layer& layer) const {
  const core::Profiled profiled("sum of experts");
  dist::OrderedSum& ordered = *layer.ordered.experts;
  const int64_t rows = inputs_.num_rows(), count = rows * width();
  float* const nodes = ordered.room(count);
  for_rows(rows, (layer.routing.top_k + 1) * width(),
           [&](int64_t row) { add_row_ordered(layer, row, nodes); });
  return ordered.sum(count);
}

// Writes a row's sums of this rank's nodes. Pieces without an expert of the row's are left out:
// they would add 0 to sums that begin with it.
void FusedExperts::add_row_ordered(const Layer& layer, int64_t row, float* nodes) const {
  const shard::SumPlan& plan = layer.ordered.experts->plan();
  thread_local core::Scratch<float> memory;
  thread_local std::vector<float*> sums;
  float* next = memory.make_room(layer.routing.top_k * width());
  sums.assign(plan.pieces.size(), nullptr);
  routing_.for_each_of(row, [&](int64_t slot, float weight) {
    float*& sum = sums[static_cast<size_t>(layer.pieces[routing_.active_of(slot)])];
    if (sum == nullptr) {
      sum = next;
      next += width();
      std::fill_n(sum, width(), 0.F);
    }
    add_chosen(layer, slot, weight, sum);
  });
  for (const shard::SumStep& step : plan.steps) {
    float *const from = sums[static_cast<size_t>(step.from)],
                 *&to = sums[static_cast<size_t>(step.to)];
    if (from != nullptr && to != nullptr) {
      std::transform(to, to + width(), from, to, [](float a, float b) { return a + b; });
    } else if (from != nullptr) {
      to = from;
    }
  }
  const int64_t stride = inputs_.num_rows() * width();
  for (size_t i = 0; i < plan.nodes.size(); ++i) {
    const float* const sum = sums[static_cast<size_t>(plan.nodes[i])];
    float* const node = nodes + static_cast<int64_t>(i) * stride + row * width();
    sum == nullptr ? std::fill_n(node, width(), 0.F) : std::copy_n(sum, width(), node);
  }
}

}  // namespace weft::models
