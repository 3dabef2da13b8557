#include "weft/models/passes/experts/expert_routing.h"

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

// What experts of groups that are not among the best are chosen by becomes 0.
void leave_out_groups(float* choice, const ExpertRouting::Options& options) {
  const int64_t each = options.num_experts / options.num_groups;
  std::vector<float> sums;
  std::vector<int64_t> best;
  for (int64_t group = 0; group < options.num_groups; ++group) {
    const float* own = choice + group * each;
    const int64_t count = std::min(options.best_of_group, each);
    best.resize(static_cast<size_t>(count));
    largest_places(own, each, count, best.data());
    float sum = 0;
    for (const int64_t place : best) sum += own[place];
    sums.push_back(sum);
  }
  std::vector<int64_t> taken(static_cast<size_t>(options.groups_per_token));
  largest_places(sums.data(), options.num_groups, options.groups_per_token, taken.data());
  for (int64_t group = 0; group < options.num_groups; ++group) {
    if (!std::ranges::binary_search(taken, group)) std::fill_n(choice + group * each, each, 0.F);
  }
}

}  // namespace

void ExpertRouting::route(const FloatRows& logits, int64_t rows, const Options& options) {
  top_k_ = options.top_k;
  const auto count = static_cast<size_t>(rows * top_k_);
  chosen_.resize(count);
  slots_.resize(count);
  weights_.resize(count);
  const bool has_scores = options.has_sigmoids || options.choice_bias != nullptr ||
                          options.num_groups > 1 || options.scale != 1;
  if (has_scores) {
    scores_.of(rows, options.num_experts);
    choice_.of(rows, options.num_experts);
  }
  constexpr int64_t kWorkPerExpert = 8;
  for_rows(rows, options.num_experts * kWorkPerExpert, [&](int64_t row) {
    has_scores ? choose_by_scores(logits.row(row), row, options)
               : choose(logits.row(row), row, options);
    if (options.expert_factors == nullptr) return;
    for (auto i = static_cast<size_t>(row * top_k_), last = i + static_cast<size_t>(top_k_);
         i < last; ++i) {
      weights_[i] *= options.expert_factors[chosen_[i]];
    }
  });
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

void ExpertRouting::choose_by_scores(const float* logits, int64_t row, const Options& options) {
  float *const scores = scores_.row(row), *const choice = choice_.row(row);
  const int64_t count = options.num_experts;
  if (options.has_sigmoids) {
    for (int64_t i = 0; i < count; ++i) scores[i] = 1 / (1 + std::exp(-logits[i]));
  } else {
    const float most = *std::max_element(logits, logits + count);
    for (int64_t i = 0; i < count; ++i) scores[i] = std::exp(logits[i] - most);
    const float sum = std::accumulate(scores, scores + count, 0.F);
    for (int64_t i = 0; i < count; ++i) scores[i] /= sum;
  }
  for (int64_t i = 0; i < count; ++i) {
    choice[i] = scores[i] + (options.choice_bias == nullptr ? 0 : options.choice_bias[i]);
  }
  if (options.num_groups > 1) leave_out_groups(choice, options);
  int64_t* const chosen = chosen_.data() + row * top_k_;
  float* const weights = weights_.data() + row * top_k_;
  largest_places(choice, count, top_k_, chosen);
  for (int64_t i = 0; i < top_k_; ++i) weights[i] = scores[chosen[i]];
  const float least = options.has_sigmoids ? 1e-20F : 0;
  const float sum = options.normalizes ? std::accumulate(weights, weights + top_k_, least) : 1.F;
  for (int64_t i = 0; i < top_k_; ++i) weights[i] = weights[i] / sum * options.scale;
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
