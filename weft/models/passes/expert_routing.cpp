#include "weft/models/passes/expert_routing.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "weft/nn/kernels/select.h"

namespace weft::models {
namespace {

// The places of the `count` largest of `size` numbers, ascending; of equal ones the first. What is
// no number counts as the least.
void largest_places(const float* numbers, int64_t size, int64_t count, int64_t* places) {
  const auto is_larger = [&](int64_t a, int64_t b) {
    return numbers[a] > numbers[b] || (std::isnan(numbers[b]) && !std::isnan(numbers[a]));
  };
  // Places so far by falling numbers.
  int64_t found = 0;
  for (int64_t i = 0; i < size; ++i) {
    if (found == count && !is_larger(i, places[count - 1])) continue;
    int64_t at = found < count ? found++ : count - 1;
    for (; at > 0 && is_larger(i, places[at - 1]); --at) places[at] = places[at - 1];
    places[at] = i;
  }
  std::sort(places, places + count);
}

}  // namespace

void ExpertRouting::route(const FloatRows& logits, int64_t rows, const Options& options) {
  top_k_ = options.top_k;
  const auto count = static_cast<size_t>(rows * top_k_);
  chosen_.resize(count);
  slots_.resize(count);
  weights_.resize(count);
  constexpr int64_t kWorkPerExpert = 8;
  for_rows(rows, options.num_experts * kWorkPerExpert,
           [&](int64_t row) { choose(logits.row(row), row, options); });
  group(options);
}

void ExpertRouting::choose(const float* logits, int64_t row, const Options& options) {
  int64_t* const chosen = chosen_.data() + row * top_k_;
  float* const weights = weights_.data() + row * top_k_;
  largest_places(logits, options.num_experts, top_k_, chosen);
  const auto& kernel = nn::kernels::active_kernel().float32;
  nn::kernels::LogitsRow all{logits, options.num_experts, 0};
  all.max = kernel.row_max(all);
  for (int64_t i = 0; i < top_k_; ++i) weights[i] = std::exp(logits[chosen[i]] - all.max);
  const float sum = options.normalizes ? std::accumulate(weights, weights + top_k_, 0.F)
                                       : kernel.row_exp_sum(all);
  for (int64_t i = 0; i < top_k_; ++i) weights[i] /= sum;
}

// Counts each expert's rows, then puts them side by side, in the order of the pass.
void ExpertRouting::group(const Options& options) {
  const auto place_of = [&](int64_t chosen) { return options.places[static_cast<size_t>(chosen)]; };
  next_.assign(options.places.size(), 0);
  for (const int64_t chosen : chosen_) {
    if (place_of(chosen) >= 0) ++next_[static_cast<size_t>(place_of(chosen))];
  }
  active_.clear();
  starts_.clear();
  int64_t start = 0;
  for (size_t place = 0; place < next_.size(); ++place) {
    const int64_t count = next_[place];
    next_[place] = start;
    if (count == 0) continue;
    active_.push_back(static_cast<int64_t>(place));
    starts_.push_back(start);
    start += count;
  }
  rows_.resize(static_cast<size_t>(start));
  for (size_t i = 0; i < chosen_.size(); ++i) {
    const int64_t place = place_of(chosen_[i]);
    slots_[i] = place < 0 ? -1 : next_[static_cast<size_t>(place)]++;
    if (place >= 0) rows_[static_cast<size_t>(slots_[i])] = static_cast<int64_t>(i) / top_k_;
  }
}

}  // namespace weft::models
