#include "weft/train/exact/sequence_order.h"

#include <algorithm>
#include <utility>

#include "weft/core/error.h"

namespace weft::train {
namespace {

// The first pieces of a plan's largest subtrees of at most `together` pieces, and the end.
std::vector<int64_t> group_edges(const shard::SumPlan& plan, int64_t together) {
  const int64_t count = std::ssize(plan.pieces);
  // By a sum's first piece, where it ends; by piece, the first one of its group.
  std::vector<int64_t> ends, starts;
  for (int64_t piece = 0; piece < count; ++piece) {
    ends.push_back(piece + 1);
    starts.push_back(piece);
  }
  for (const shard::SumStep& step : plan.steps) {
    int64_t& end = ends[static_cast<size_t>(step.to)];
    end = ends[static_cast<size_t>(step.from)];
    if (end - step.to <= together)
      std::fill(starts.begin() + step.to, starts.begin() + end, step.to);
  }
  starts.push_back(count);
  starts.erase(std::unique(starts.begin(), starts.end()), starts.end());
  return starts;
}

// Of the rank that has the most groups: how many edges these have.
size_t most_edges(const shard::SumOrder& order, const shard::Layout& layout, int64_t together) {
  size_t most = 0;
  for (int64_t rank = 0; rank < layout.num_ranks(); ++rank) {
    most = std::max(most, group_edges(order.own_part(layout, rank), together).size());
  }
  return most;
}

// Cuts the largest of the groups where the tree does.
void split_largest(const shard::SumPlan& plan, std::vector<int64_t>& edges) {
  size_t largest = 0;
  const auto length = [&](size_t i) { return edges[i + 1] - edges[i]; };
  for (size_t i = 1; i + 1 < edges.size(); ++i) {
    if (length(i) > length(largest)) largest = i;
  }
  int64_t cut = 0;
  for (const shard::SumStep& step : plan.steps) {
    const bool is_within = step.to == edges[largest] && step.from < edges[largest + 1];
    if (is_within) cut = step.from;
  }
  edges.insert(edges.begin() + static_cast<int64_t>(largest) + 1, cut);
}

// The same as group_edges, with groups cut until there are so many edges.
std::vector<int64_t> split_edges(const shard::SumPlan& plan, int64_t together, size_t num_edges) {
  std::vector<int64_t> edges = group_edges(plan, together);
  while (edges.size() < num_edges) split_largest(plan, edges);
  return edges;
}

shard::SumPlan subtree_of(const shard::SumPlan& plan, const shard::Range& group) {
  shard::SumPlan subtree;
  for (int64_t i = 0; i < group.length; ++i) subtree.pieces.push_back({i, 1});
  for (const shard::SumStep& step : plan.steps) {
    const bool is_within = step.to >= group.start && step.from < group.end();
    if (is_within) subtree.steps.push_back({step.to - group.start, step.from - group.start});
  }
  subtree.nodes = {0};
  subtree.slots = 1;
  return subtree;
}

SequencePlan plan_of_groups(const shard::SumPlan& whole, const std::vector<int64_t>& edges) {
  SequencePlan plan;
  plan.sums = whole;
  plan.sums.pieces.clear();
  plan.sums.steps.clear();
  for (size_t i = 0; i + 1 < edges.size(); ++i) {
    const shard::Range group{edges[i], edges[i + 1] - edges[i]};
    plan.groups.push_back(
        {group, std::make_shared<const shard::SumPlan>(subtree_of(whole, group))});
    plan.sums.pieces.push_back(group);
  }
  const auto group_of = [&](int64_t piece) {
    return std::upper_bound(edges.begin(), edges.end(), piece) - edges.begin() - 1;
  };
  for (const shard::SumStep& step : whole.steps) {
    const shard::SumStep of_groups{group_of(step.to), group_of(step.from)};
    if (of_groups.to != of_groups.from) plan.sums.steps.push_back(of_groups);
  }
  for (int64_t& node : plan.sums.nodes) node = group_of(node);
  return plan;
}

// Gradients that wait for others at the same time.
int64_t most_kept(const shard::SumPlan& sums) {
  int64_t kept = 0, most = 0;
  size_t next = 0;
  for (int64_t group = 0; group < std::ssize(sums.pieces); ++group) {
    most = std::max(most, ++kept);
    for (; next < sums.steps.size() && sums.steps[next].from <= group; ++next) --kept;
  }
  return most;
}

}  // namespace

shard::Layout sequence_layout(int64_t sequences, int64_t ranks) {
  core::check<core::ConfigError>(sequences >= 1 && ranks >= 1 && sequences % ranks == 0,
                                 "train.exact: ", sequences, " sequences of a step over ", ranks,
                                 " data ranks, expected a multiple of them");
  return shard::contiguous_layout(
      0, std::vector<int64_t>(static_cast<size_t>(ranks), sequences / ranks));
}

shard::SumOrder sequence_order(int64_t sequences) {
  std::vector<shard::Layout> cuts = {sequence_layout(sequences, 1)};
  for (int64_t ranks = 2; ranks <= sequences; ++ranks) {
    if (sequences % ranks == 0) cuts.push_back(sequence_layout(sequences, ranks));
  }
  return shard::SumOrder(cuts);
}

SequencePlan sequence_plan(int64_t sequences, int64_t ranks, int64_t rank, int64_t together) {
  const shard::SumOrder order = sequence_order(sequences);
  const shard::Layout layout = sequence_layout(sequences, ranks);
  const shard::SumPlan whole = order.plan(layout, rank);
  return plan_of_groups(whole, split_edges(whole, together, most_edges(order, layout, together)));
}

int64_t most_kept_gradients(int64_t sequences, int64_t ranks, int64_t together) {
  if (sequences == ranks) return 1;
  const shard::SumOrder order = sequence_order(sequences);
  const shard::Layout layout = sequence_layout(sequences, ranks);
  const size_t num_edges = most_edges(order, layout, together);
  int64_t most = 0;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    const shard::SumPlan own = order.own_part(layout, rank);
    most =
        std::max(most, most_kept(plan_of_groups(own, split_edges(own, together, num_edges)).sums));
  }
  return most;
}

}  // namespace weft::train
