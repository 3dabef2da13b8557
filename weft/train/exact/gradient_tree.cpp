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

void add_all(std::vector<at::Tensor>& to, std::vector<at::Tensor>& from) {
  for (size_t i = 0; i < to.size(); ++i) to[i].add_(from[i]);
  from.clear();
}

// Tensors end to end, and zeros behind them.
at::Tensor flat(const std::vector<at::Tensor>& tensors, int64_t length) {
  at::Tensor run = at::empty({length}, at::kFloat);
  int64_t start = 0;
  for (const at::Tensor& tensor : tensors) {
    run.narrow(0, start, tensor.numel()).copy_(tensor.reshape({-1}));
    start += tensor.numel();
  }
  run.narrow(0, start, length - start).zero_();
  return run;
}

at::Tensor part_of(const at::Tensor& run, const shard::Range& range) {
  return run.narrow(0, range.start, range.length);
}

}  // namespace

GradientTree::GradientTree(int64_t sequences, dist::Group batch)
    : batch_(std::move(batch)),
      plans_(plans_of(sequences, batch_.size())),
      plan_(plans_[static_cast<size_t>(batch_.rank())]),
      sums_(plan_.pieces.size()) {}

void GradientTree::add(std::vector<at::Tensor> gradients) {
  core::check<core::ConfigError>(!is_complete(), "train.exact: more than ", plan_.pieces.size(),
                                 " backward passes in a step, expected one for each sequence");
  sums_[static_cast<size_t>(next_)] = std::move(gradients);
  for (; next_step_ < plan_.steps.size() && plan_.steps[next_step_].from <= next_; ++next_step_) {
    const shard::SumStep& step = plan_.steps[next_step_];
    add_all(sums_[static_cast<size_t>(step.to)], sums_[static_cast<size_t>(step.from)]);
  }
  ++next_;
}

// By place (plan.joins) what this rank owns of every rank's sums.
std::vector<at::Tensor> GradientTree::exchanged(const std::vector<shard::Range>& owned) const {
  const int64_t rank = batch_.rank(), ranks = batch_.size();
  std::vector<at::Tensor> places(static_cast<size_t>(ranks * plan_.slots));
  const auto place = [&](int64_t of, size_t node) -> at::Tensor& {
    return places[static_cast<size_t>(of * plan_.slots) + node];
  };
  const int64_t length = owned.front().length * ranks;
  for (size_t i = 0; i < plan_.nodes.size(); ++i) {
    const at::Tensor run = flat(sums_[static_cast<size_t>(plan_.nodes[i])], length);
    for (int64_t to = 0; to < ranks; ++to) {
      const at::Tensor part = part_of(run, owned[static_cast<size_t>(to)]);
      if (to == rank) {
        place(rank, i) = part;
      } else {
        batch_.send(part, to);
      }
    }
  }
  for (int64_t from = 0; from < ranks; ++from) {
    const size_t nodes = from == rank ? 0 : plans_[static_cast<size_t>(from)].nodes.size();
    for (size_t i = 0; i < nodes; ++i) {
      place(from, i) = at::empty({owned.front().length}, at::kFloat);
      batch_.receive(place(from, i), from);
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
  for (std::vector<at::Tensor>& each : sums_) each.clear();
  next_ = 0;
  next_step_ = 0;
  return places[static_cast<size_t>(plan_.result)];
}

}  // namespace weft::train
