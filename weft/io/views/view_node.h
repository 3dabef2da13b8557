#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weft/io/tensor_file.h"
#include "weft/io/views/packing.h"

// What a View is made of. The functions here expect checked arguments; View checks them.

namespace weft::io {

/// One digit of an index in mixed radix: `count` values, `stride` elements apart.
struct Factor {
  int64_t count = 1;
  int64_t stride = 0;

  bool operator==(const Factor&) const = default;
};

/// Digits of one dim, slowest first. None: size 1.
using Factors = std::vector<Factor>;

/// The tensor that a leaf points into.
struct StoredTensor {
  TensorMeta meta;
  Packing packing;
};

struct ViewNode;
/// Nodes are shared and never change.
using ViewNodePtr = std::shared_ptr<const ViewNode>;

/// A leaf (no children), or children concatenated along `cat_dim`. Sizes of children along it are
/// at least 1, and no child is a concatenation along the same dim. A view without elements is a
/// leaf.
struct ViewNode {
  std::shared_ptr<const StoredTensor> tensor;
  std::vector<int64_t> shape;
  /// Leaf: index of the first element in the tensor, and the digits of each dim.
  int64_t start = 0;
  std::vector<Factors> dims;
  /// Concatenation.
  int64_t cat_dim = 0;
  std::vector<ViewNodePtr> children;
  size_t num_leaves = 1;

  bool is_leaf() const { return children.empty(); }
};

/// Product of the counts.
int64_t factors_size(const Factors& factors);
/// Drops digits of one value and merges digits that count on.
Factors coalesce(const Factors& factors);
/// The digits regrouped into dims of `sizes` (their product is factors_size), if that is possible
/// without cutting a digit unevenly.
std::optional<std::vector<Factors>> split_factors(const Factors& factors,
                                                  std::span<const int64_t> sizes);

/// A stretch of an index range that has digits of its own, from element `start` on.
struct FactorPiece {
  Factors factors;
  int64_t start = 0;
};

/// `length` >= 1 indices from `start` on; at most 2k + 1 pieces for k digits.
std::vector<FactorPiece> narrow_factors(const Factors& factors, int64_t start, int64_t length);

/// Product of `shape`. Throws ShapeError above 2^63, even if a size is 0.
int64_t checked_elements(std::span<const int64_t> shape, const std::string& where);

/// The node of a whole tensor whose shape in elements is `shape`.
ViewNodePtr make_leaf(std::shared_ptr<const StoredTensor> tensor, std::vector<int64_t> shape);
/// A node without elements.
ViewNodePtr make_empty(std::shared_ptr<const StoredTensor> tensor, std::vector<int64_t> shape);

/// Collects nodes that are concatenated along a dim. Leaves out empty ones, merges neighbours that
/// adjoin, and throws ShapeError above View::kMaxPieces.
class CatBuilder {
 public:
  explicit CatBuilder(int64_t dim) : dim_(dim) {}
  void add(const ViewNodePtr& node);
  /// At least one node must have been added.
  ViewNodePtr finish();

 private:
  void add_one(const ViewNodePtr& node);

  int64_t dim_;
  std::vector<ViewNodePtr> children_;
  size_t num_leaves_ = 0;
  ViewNodePtr empty_;
};

/// The operations of View on nodes. `length` >= 1 and no size is 0.
ViewNodePtr narrow_node(const ViewNodePtr& node, int64_t dim, int64_t start, int64_t length);
/// Drops `dim` of size 1.
ViewNodePtr drop_dim(const ViewNodePtr& node, int64_t dim);
/// A new dim of size 1.
ViewNodePtr insert_dim(const ViewNodePtr& node, int64_t dim);
ViewNodePtr permute_node(const ViewNodePtr& node, std::span<const int64_t> order);
ViewNodePtr flatten_node(const ViewNodePtr& node, int64_t first, int64_t last);
ViewNodePtr unflatten_node(const ViewNodePtr& node, int64_t dim, std::span<const int64_t> sizes);
ViewNodePtr repeat_node(const ViewNodePtr& node, int64_t dim, int64_t times);

}  // namespace weft::io
