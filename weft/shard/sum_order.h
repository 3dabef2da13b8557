#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "weft/shard/layout.h"

namespace weft::shard {

/// A step of a sum: what lies at `to` becomes itself plus what lies at `from`.
struct SumStep {
  int64_t to = 0;
  int64_t from = 0;

  bool operator==(const SumStep&) const = default;
};

/// What one rank does of a sum that has one order for any number of ranks, and what the ranks do
/// with each other's results.
struct SumPlan {
  /// What is summed by itself: ranges within this rank's shard, end to end.
  std::vector<Range> pieces;
  /// Steps between pieces, in this order.
  std::vector<SumStep> steps;
  /// Pieces that hold, after those, a sum that others need; at most `slots`.
  std::vector<int64_t> nodes;
  /// Room for the sums of every rank.
  int64_t slots = 0;
  /// Steps between all ranks' sums, of which node i of rank r is at r * slots + i.
  std::vector<SumStep> joins;
  /// Where the whole's sum is in the end.
  int64_t result = 0;
};

/// Rows of so many numbers that ranks exchange at once where a sum is of many rows: a few
/// megabytes, and enough rows that products are made of.
inline int64_t rows_exchanged_at_once(int64_t columns) {
  constexpr int64_t kNumbers = 1 << 19, kLeastRows = 64;
  return std::max(kLeastRows, kNumbers / columns);
}

/// How numbers along a dim are added so that the result has the same bits however many ranks share
/// them. Pieces lie between all places where some number of ranks cuts the dim. Each is summed by
/// itself, and pieces are added by one binary tree, which every rank follows for what it has.
/// Sums of two floats are the same in either order, so the tree alone decides.
class SumOrder {
 public:
  /// The pieces of all `cuts`: layouts of one size for the numbers of ranks that are to agree. The
  /// tree is cut first where the first of them is, so that its ranks have one sum each to share.
  /// Throws ShapeError for none, for layouts of several sizes, and for layouts that replicate.
  explicit SumOrder(const std::vector<Layout>& cuts);

  int64_t num_pieces() const { return static_cast<int64_t>(edges_.size()) - 1; }
  /// Elements at which pieces begin, and the end.
  const std::vector<int64_t>& edges() const { return edges_; }
  /// Throws ConfigError for a layout that cuts a piece, which none of `cuts` was.
  SumPlan plan(const Layout& layout, int64_t rank) const;
  /// Of the plan what the rank does by itself, pieces, steps and nodes, without a look at the
  /// others. Throws as plan.
  SumPlan own_part(const Layout& layout, int64_t rank) const;

 private:
  std::vector<Range> nodes_of(const Layout& layout, int64_t rank) const;
  Range pieces_of(const Range& elements) const;
  int64_t middle(const Range& pieces) const;
  void add_nodes(const Range& node, const Range& own, std::vector<Range>& nodes) const;
  int64_t fold(const Range& node, const std::vector<int64_t>& places,
               std::vector<SumStep>& steps) const;

  std::vector<int64_t> edges_;
  /// Of each edge, the first of the cuts that has it.
  std::vector<int64_t> levels_;
};

}  // namespace weft::shard
