#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "weft/models/passes/float_rows.h"

namespace weft::models {

/// Which of the experts that a rank holds each row of a pass takes, and the rows of each expert
/// together. Rows' numbers don't depend on the rows beside them, and an expert that no row takes is
/// not mentioned.
class ExpertRouting {
 public:
  struct Options {
    int64_t num_experts = 0;
    /// Experts of a row.
    int64_t top_k = 1;
    /// A row's weights are divided by their sum.
    bool normalizes = true;
    /// Of each expert, its place among those that are held; -1: it is elsewhere.
    std::span<const int64_t> places = {};
    /// As nn::RoutingOptions has them.
    bool has_sigmoids = false;
    int64_t num_groups = 1;
    int64_t groups_per_token = 1;
    int64_t best_of_group = 2;
    float scale = 1;
    /// Of each expert, added to scores for the choice alone; null: nothing.
    const float* choice_bias = nullptr;
    /// Of each expert, what its weights are multiplied by in the end; null: nothing.
    const float* expert_factors = nullptr;
  };

  /// `logits`: of each row, num_experts of them. A row takes the experts with the largest, the
  /// first of equal ones, with their softmax as weights; or as the options say. Logits that are no
  /// numbers give weights that are none.
  void route(const FloatRows& logits, int64_t rows, const Options& options);

  /// The held experts that rows take, ascending, and where the rows of each begin in rows().
  std::span<const int64_t> active() const { return active_; }
  std::span<const int64_t> starts() const { return starts_; }
  /// Rows of the pass, those of one expert together, each as often as it takes a held expert.
  std::span<const int64_t> rows() const { return rows_; }
  /// The place, among those that are held, of the expert that a place in rows() belongs to.
  size_t active_of(int64_t slot) const {
    const auto behind = std::upper_bound(starts_.begin(), starts_.end(), slot);
    return static_cast<size_t>(active_[static_cast<size_t>(behind - starts_.begin() - 1)]);
  }
  /// Calls use(place in rows(), weight) for each of a row's held experts, ascending.
  template <class Use>
  void for_each_of(int64_t row, Use&& use) const {
    for (int64_t i = row * top_k_; i < (row + 1) * top_k_; ++i) {
      const auto at = static_cast<size_t>(i);
      if (slots_[at] >= 0) use(slots_[at], weights_[at]);
    }
  }

 private:
  void choose(const float* logits, int64_t row, const Options& options);
  void choose_by_scores(const float* logits, int64_t row, const Options& options);
  void group(const Options& options);

  int64_t top_k_ = 1;
  /// [rows, top_k], ascending in each row: the experts' numbers, weights, and places in rows_.
  std::vector<int64_t> chosen_, slots_;
  std::vector<float> weights_;
  /// Of all experts of each row: scores, and what experts are chosen by.
  FloatRows scores_, choice_;
  /// Of each held expert: where its next row goes.
  std::vector<int64_t> next_;
  std::vector<int64_t> active_, starts_, rows_;
};

}  // namespace weft::models
