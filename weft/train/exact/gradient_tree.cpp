#include "weft/train/exact/gradient_tree.h"

#include <ATen/ops/empty.h>

#include <utility>

#include "weft/core/error.h"

namespace weft::train {
namespace {

void add_all(std::vector<at::Tensor>& to, std::vector<at::Tensor>& from) {
  for (size_t i = 0; i < to.size(); ++i) to[i].add_(from[i]);
  from.clear();
}

// Tensors end to end, and zeros behind them. Each is forgotten once it is written.
void flatten(std::vector<at::Tensor>& tensors, at::Tensor& run) {
  int64_t start = 0;
  for (at::Tensor& tensor : tensors) {
    run.narrow(0, start, tensor.numel()).copy_(tensor.reshape({-1}));
    start += std::exchange(tensor, at::Tensor()).numel();
  }
  tensors.clear();
  run.narrow(0, start, run.size(0) - start).zero_();
}

at::Tensor part_of(const at::Tensor& run, const shard::Range& range) {
  return run.narrow(0, range.start, range.length);
}

}  // namespace

GradientTree::GradientTree(int64_t sequences, int64_t together, dist::Group batch)
    : batch_(std::move(batch)),
      plan_(sequence_plan(sequences, batch_.size(), batch_.rank(), together)),
      sums_(plan_.groups.size()) {
  const shard::SumOrder order = sequence_order(sequences);
  const shard::Layout layout = sequence_layout(sequences, batch_.size());
  for (int64_t rank = 0; rank < batch_.size(); ++rank) {
    num_nodes_.push_back(order.own_part(layout, rank).nodes.size());
  }
}

void GradientTree::add(std::vector<at::Tensor> gradients) {
  core::check<core::ConfigError>(!is_complete(), "train.exact: more than ", plan_.groups.size(),
                                 " backward passes in a step, expected one for each group of "
                                 "sequences");
  sums_[static_cast<size_t>(next_)] = std::move(gradients);
  const std::vector<shard::SumStep>& steps = plan_.sums.steps;
  for (; next_step_ < steps.size() && steps[next_step_].from <= next_; ++next_step_) {
    const shard::SumStep& step = steps[next_step_];
    add_all(sums_[static_cast<size_t>(step.to)], sums_[static_cast<size_t>(step.from)]);
  }
  ++next_;
}

// By place (SumPlan::joins) what this rank owns of every rank's sums.
std::vector<at::Tensor> GradientTree::exchanged(const std::vector<shard::Range>& owned) {
  const int64_t rank = batch_.rank(), ranks = batch_.size(), slots = plan_.sums.slots;
  std::vector<at::Tensor> places(static_cast<size_t>(ranks * slots));
  const auto place = [&](int64_t of, size_t node) -> at::Tensor& {
    return places[static_cast<size_t>(of * slots) + node];
  };
  const int64_t length = owned.front().length;
  for (size_t i = 0; i < plan_.sums.nodes.size(); ++i) {
    at::Tensor run = at::empty({length * ranks}, at::kFloat);
    flatten(node(i), run);
    for (int64_t to = 0; to < ranks; ++to) {
      const at::Tensor part = part_of(run, owned[static_cast<size_t>(to)]);
      if (to == rank) {
        place(rank, i) = part.clone();
      } else {
        batch_.send(part, to);
      }
    }
  }
  for (int64_t from = 0; from < ranks; ++from) {
    const size_t nodes = from == rank ? 0 : num_nodes_[static_cast<size_t>(from)];
    for (size_t i = 0; i < nodes; ++i) {
      place(from, i) = at::empty({length}, at::kFloat);
      batch_.receive(place(from, i), from);
    }
  }
  return places;
}

void GradientTree::finish(const std::vector<shard::Range>& owned, at::Tensor& to) {
  core::check<core::ConfigError>(is_complete(), "train.exact: ", next_,
                                 " backward passes in a step, expected one for each of ",
                                 plan_.groups.size(), " groups of sequences");
  if (batch_.size() == 1) {
    flatten(node(0), to);
  } else {
    std::vector<at::Tensor> places = exchanged(owned);
    for (const shard::SumStep& step : plan_.sums.joins) {
      places[static_cast<size_t>(step.to)].add_(places[static_cast<size_t>(step.from)]);
    }
    to.copy_(places[static_cast<size_t>(plan_.sums.result)]);
  }
  next_ = 0;
  next_step_ = 0;
}

}  // namespace weft::train
