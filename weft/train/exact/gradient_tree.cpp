#include "weft/train/exact/gradient_tree.h"

#include <ATen/ops/empty.h>

#include <utility>

#include "weft/core/error.h"
#include "weft/train/exact/sequence_order.h"

namespace weft::train {
namespace {

std::vector<shard::SumPlan> plans_of(int64_t sequences, int64_t ranks) {
  const shard::SumOrder order = sequence_order(sequences);
  const shard::Layout layout = sequence_layout(sequences, ranks);
  std::vector<shard::SumPlan> plans;
  for (int64_t rank = 0; rank < ranks; ++rank) plans.push_back(order.plan(layout, rank));
  return plans;
}

at::Tensor part_of(const at::Tensor& sum, const shard::Range& range) {
  return sum.narrow(0, range.start, range.length);
}

}  // namespace

GradientTree::GradientTree(int64_t sequences, dist::Group batch)
    : batch_(std::move(batch)),
      plans_(plans_of(sequences, batch_.size())),
      plan_(plans_[static_cast<size_t>(batch_.rank())]),
      sums_(plan_.pieces.size()) {}

void GradientTree::add(at::Tensor gradient) {
  core::check<core::ConfigError>(!is_complete(), "train.exact: more than ", plan_.pieces.size(),
                                 " backward passes in a step, expected one for each sequence");
  sums_[static_cast<size_t>(next_)] = std::move(gradient);
  for (; next_step_ < plan_.steps.size() && plan_.steps[next_step_].from <= next_; ++next_step_) {
    const shard::SumStep& step = plan_.steps[next_step_];
    at::Tensor& from = sums_[static_cast<size_t>(step.from)];
    sums_[static_cast<size_t>(step.to)].add_(from);
    from.reset();
  }
  ++next_;
}

// By place (plan.joins) what this rank owns of every rank's sums.
std::vector<at::Tensor> GradientTree::exchanged(const std::vector<shard::Range>& owned) const {
  const shard::Range& own = owned[static_cast<size_t>(batch_.rank())];
  for (int64_t rank = 0; rank < batch_.size(); ++rank) {
    if (rank == batch_.rank()) continue;
    for (const int64_t node : plan_.nodes) {
      batch_.send(part_of(sums_[static_cast<size_t>(node)], owned[static_cast<size_t>(rank)]),
                  rank);
    }
  }
  std::vector<at::Tensor> places(static_cast<size_t>(batch_.size() * plan_.slots));
  for (int64_t rank = 0; rank < batch_.size(); ++rank) {
    const std::vector<int64_t>& nodes = plans_[static_cast<size_t>(rank)].nodes;
    for (size_t i = 0; i < nodes.size(); ++i) {
      at::Tensor& place = places[static_cast<size_t>(rank * plan_.slots) + i];
      if (rank == batch_.rank()) {
        place = part_of(sums_[static_cast<size_t>(nodes[i])], own);
      } else {
        place = at::empty({own.length}, at::kFloat);
        batch_.receive(place, rank);
      }
    }
  }
  return places;
}

at::Tensor GradientTree::finish(const std::vector<shard::Range>& owned) {
  core::check<core::ConfigError>(is_complete(), "train.exact: ", next_,
                                 " backward passes in a step, expected one for each of ",
                                 plan_.pieces.size(), " sequences");
  std::vector<at::Tensor> places = exchanged(owned);
  for (const shard::SumStep& step : plan_.joins) {
    places[static_cast<size_t>(step.to)].add_(places[static_cast<size_t>(step.from)]);
  }
  at::Tensor sum = places[static_cast<size_t>(plan_.result)].clone();
  for (at::Tensor& each : sums_) each.reset();
  next_ = 0;
  next_step_ = 0;
  return sum;
}

}  // namespace weft::train
