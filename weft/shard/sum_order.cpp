#include "weft/shard/sum_order.h"

#include <algorithm>
#include <cstdlib>
#include <map>

#include "weft/core/error.h"

namespace weft::shard {
namespace {

using core::check;
using core::ConfigError;
using core::ShapeError;

// In `places`: no sum of these pieces is at hand as one.
constexpr int64_t kNone = -1;

}  // namespace

SumOrder::SumOrder(const std::vector<Layout>& cuts) {
  check<ShapeError>(!cuts.empty(), "shard.SumOrder: no layouts, expected at least one");
  const int64_t size = cuts.front().size;
  std::map<int64_t, int64_t> levels = {{0, 0}, {size, 0}};
  for (size_t i = 0; i < cuts.size(); ++i) {
    check<ShapeError>(cuts[i].size == size && !cuts[i].overlaps(), "shard.SumOrder: a layout of ",
                      cuts[i].size, " elements", cuts[i].overlaps() ? " that overlap" : "",
                      ", expected ", size, ", each on one rank");
    for (const auto& ranges : cuts[i].ranges) {
      for (const Range& range : ranges) {
        levels.emplace(range.start, static_cast<int64_t>(i));
        levels.emplace(range.end(), static_cast<int64_t>(i));
      }
    }
  }
  for (const auto& [edge, level] : levels) {
    edges_.push_back(edge);
    levels_.push_back(level);
  }
}

// The pieces that make up the elements.
Range SumOrder::pieces_of(const Range& elements) const {
  const auto place = [&](int64_t edge) {
    const auto at = std::lower_bound(edges_.begin(), edges_.end(), edge);
    check<ConfigError>(at != edges_.end() && *at == edge, "shard.SumOrder: a cut at ", edge, " of ",
                       edges_.back(), " elements, expected one of ", core::list_text(edges_),
                       "; use a number of ranks that was planned for");
    return at - edges_.begin();
  };
  const int64_t first = place(elements.start);
  return {first, place(elements.end()) - first};
}

// Where the tree divides several pieces: at the first cut's edges if there are, then at the next
// one's; among those of one cut, nearest to the middle.
int64_t SumOrder::middle(const Range& pieces) const {
  const auto edge = [&](int64_t at) { return edges_[static_cast<size_t>(at)]; };
  const int64_t both = edge(pieces.start) + edge(pieces.end());
  int64_t best = pieces.start + 1;
  for (int64_t at = best + 1; at < pieces.end(); ++at) {
    const int64_t level = levels_[static_cast<size_t>(at)];
    const int64_t best_level = levels_[static_cast<size_t>(best)];
    const bool is_nearer = std::abs(2 * edge(at) - both) < std::abs(2 * edge(best) - both);
    if (level < best_level || (level == best_level && is_nearer)) best = at;
  }
  return best;
}

// The largest nodes of the tree below `node` whose pieces are all in `own`.
void SumOrder::add_nodes(const Range& node, const Range& own, std::vector<Range>& nodes) const {
  if (node.end() <= own.start || own.end() <= node.start) return;
  if (own.start <= node.start && node.end() <= own.end()) return nodes.push_back(node);
  const int64_t cut = middle(node);
  add_nodes({node.start, cut - node.start}, own, nodes);
  add_nodes({cut, node.end() - cut}, own, nodes);
}

// Adds what is below `node` and returns where its sum is; `places` has, for the first piece of each
// sum that is at hand, where that is.
int64_t SumOrder::fold(const Range& node, const std::vector<int64_t>& places,
                       std::vector<SumStep>& steps) const {
  const auto is_at_hand = [&](int64_t piece) {
    return places[static_cast<size_t>(piece)] != kNone;
  };
  bool is_one = is_at_hand(node.start);
  for (int64_t piece = node.start + 1; piece < node.end(); ++piece) {
    is_one = is_one && !is_at_hand(piece);
  }
  if (is_one) return places[static_cast<size_t>(node.start)];
  const int64_t cut = middle(node);
  const int64_t to = fold({node.start, cut - node.start}, places, steps);
  steps.push_back({to, fold({cut, node.end() - cut}, places, steps)});
  return to;
}

// The largest subtrees that the rank has whole.
std::vector<Range> SumOrder::nodes_of(const Layout& layout, int64_t rank) const {
  check<ShapeError>(layout.size == edges_.back(), "shard.SumOrder.plan: a layout of ", layout.size,
                    " elements, expected ", edges_.back());
  std::vector<Range> nodes;
  for (const Range& range : layout.of(rank)) add_nodes({0, num_pieces()}, pieces_of(range), nodes);
  return nodes;
}

SumPlan SumOrder::own_part(const Layout& layout, int64_t rank) const {
  SumPlan plan;
  std::vector<int64_t> own(edges_.size() - 1, kNone);
  int64_t start = 0;
  for (const Range& node : nodes_of(layout, rank)) {
    for (int64_t piece = node.start; piece < node.end(); ++piece) {
      own[static_cast<size_t>(piece)] = static_cast<int64_t>(plan.pieces.size());
      const int64_t length =
          edges_[static_cast<size_t>(piece) + 1] - edges_[static_cast<size_t>(piece)];
      plan.pieces.push_back({start, length});
      start += length;
    }
    plan.nodes.push_back(fold(node, own, plan.steps));
  }
  return plan;
}

SumPlan SumOrder::plan(const Layout& layout, int64_t rank) const {
  SumPlan plan = own_part(layout, rank);
  std::vector<std::vector<Range>> nodes;
  for (int64_t each = 0; each < layout.num_ranks(); ++each) {
    nodes.push_back(nodes_of(layout, each));
    plan.slots = std::max(plan.slots, static_cast<int64_t>(nodes.back().size()));
  }
  std::vector<int64_t> slots(edges_.size() - 1, kNone);
  for (size_t each = 0; each < nodes.size(); ++each) {
    for (size_t i = 0; i < nodes[each].size(); ++i) {
      slots[static_cast<size_t>(nodes[each][i].start)] =
          static_cast<int64_t>(each) * plan.slots + static_cast<int64_t>(i);
    }
  }
  plan.result = fold({0, num_pieces()}, slots, plan.joins);
  return plan;
}

}  // namespace weft::shard
