#include "weft/io/views/view_node.h"

#include <algorithm>

#include "weft/core/error.h"
#include "weft/io/views/view.h"

namespace weft::io {

using core::check;
using core::ShapeError;

int64_t checked_elements(std::span<const int64_t> shape, const std::string& where) {
  int64_t count = 1;
  bool fits = true;
  bool is_empty = false;
  for (const int64_t size : shape) {
    if (size == 0) is_empty = true;
    fits = fits && !__builtin_mul_overflow(count, std::max<int64_t>(size, 1), &count);
  }
  check<ShapeError>(fits, where, ": ", core::list_text(shape), " is more than 2^63 elements");
  return is_empty ? 0 : count;
}

ViewNodePtr make_leaf(std::shared_ptr<const StoredTensor> tensor, std::vector<int64_t> shape) {
  auto node = std::make_shared<ViewNode>();
  node->dims.resize(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i > 0; --i) {
    node->dims[i - 1] = coalesce({{shape[i - 1], stride}});
    stride *= shape[i - 1];
  }
  node->tensor = std::move(tensor);
  node->shape = std::move(shape);
  return node;
}

ViewNodePtr make_empty(std::shared_ptr<const StoredTensor> tensor, std::vector<int64_t> shape) {
  auto node = std::make_shared<ViewNode>();
  node->dims.resize(shape.size());
  node->tensor = std::move(tensor);
  node->shape = std::move(shape);
  return node;
}

namespace {

ViewNodePtr leaf_of(const ViewNode& like, int64_t start, std::vector<Factors> dims) {
  auto node = std::make_shared<ViewNode>();
  node->tensor = like.tensor;
  node->start = start;
  for (const Factors& factors : dims) node->shape.push_back(factors_size(factors));
  node->dims = std::move(dims);
  return node;
}

// Applies `operation` to the children and concatenates the results along `dim`.
template <class Operation>
ViewNodePtr map_children(const ViewNode& node, int64_t dim, const Operation& operation) {
  CatBuilder builder(dim);
  for (const ViewNodePtr& child : node.children) builder.add(operation(child));
  return builder.finish();
}

int64_t size_of(const ViewNodePtr& node, int64_t dim) {
  return node->shape[static_cast<size_t>(dim)];
}

void check_pieces(const ViewNode& node, size_t count) {
  check<ShapeError>(count <= View::kMaxPieces, "io.View: a view of ",
                    core::quote(node.tensor->meta.name), " needs more than ", View::kMaxPieces,
                    " pieces; reorder the file once instead, or cut along other dims");
}

// The leaf that goes through `a` and then `b` along `dim`, if their digits allow.
ViewNodePtr merged_leaf(const ViewNodePtr& a, const ViewNodePtr& b, int64_t dim) {
  const auto at = static_cast<size_t>(dim);
  if (!a->is_leaf() || !b->is_leaf() || a->tensor != b->tensor) return nullptr;
  const Factors& first = a->dims[at];
  const Factors& second = b->dims[at];
  for (size_t i = 0; i < a->dims.size(); ++i) {
    if (i != at && a->dims[i] != b->dims[i]) return nullptr;
  }
  if (first.size() > 1 || second.size() > 1) return nullptr;
  const int64_t step = b->start - a->start;
  const int64_t stride =
      !first.empty() ? first[0].stride : (!second.empty() ? second[0].stride : step);
  const bool counts_on = step == stride * size_of(a, dim) && stride > 0 &&
                         (second.empty() || second[0].stride == stride);
  if (!counts_on) return nullptr;
  std::vector<Factors> dims = a->dims;
  dims[at] = {{size_of(a, dim) + size_of(b, dim), stride}};
  return leaf_of(*a, a->start, std::move(dims));
}

}  // namespace

void CatBuilder::add(const ViewNodePtr& node) {
  if (std::find(node->shape.begin(), node->shape.end(), 0) != node->shape.end()) {
    if (empty_ == nullptr) empty_ = node;
    return;
  }
  if (!node->is_leaf() && node->cat_dim == dim_) {
    for (const ViewNodePtr& child : node->children) add_one(child);
  } else {
    add_one(node);
  }
}

void CatBuilder::add_one(const ViewNodePtr& node) {
  if (!children_.empty()) {
    if (ViewNodePtr merged = merged_leaf(children_.back(), node, dim_)) {
      children_.back() = std::move(merged);
      return;
    }
  }
  children_.push_back(node);
  num_leaves_ += node->num_leaves;
  check_pieces(*node, num_leaves_);
}

ViewNodePtr CatBuilder::finish() {
  if (children_.empty()) return empty_;
  if (children_.size() == 1) return children_[0];
  auto node = std::make_shared<ViewNode>();
  node->tensor = children_[0]->tensor;
  node->shape = children_[0]->shape;
  node->cat_dim = dim_;
  node->num_leaves = num_leaves_;
  int64_t& size = node->shape[static_cast<size_t>(dim_)];
  size = 0;
  for (const ViewNodePtr& child : children_) size += size_of(child, dim_);
  node->children = std::move(children_);
  return node;
}

ViewNodePtr narrow_node(const ViewNodePtr& node, int64_t dim, int64_t start, int64_t length) {
  const auto at = static_cast<size_t>(dim);
  if (start == 0 && length == node->shape[at]) return node;
  CatBuilder builder(dim);
  if (node->is_leaf()) {
    for (FactorPiece& piece : narrow_factors(node->dims[at], start, length)) {
      std::vector<Factors> dims = node->dims;
      dims[at] = std::move(piece.factors);
      builder.add(leaf_of(*node, node->start + piece.start, std::move(dims)));
    }
    return builder.finish();
  }
  if (node->cat_dim != dim) {
    return map_children(*node, node->cat_dim, [&](const ViewNodePtr& child) {
      return narrow_node(child, dim, start, length);
    });
  }
  int64_t position = 0;
  for (const ViewNodePtr& child : node->children) {
    const int64_t first = std::max(start, position);
    const int64_t last = std::min(start + length, position + size_of(child, dim));
    if (first < last) builder.add(narrow_node(child, dim, first - position, last - first));
    position += size_of(child, dim);
  }
  return builder.finish();
}

ViewNodePtr drop_dim(const ViewNodePtr& node, int64_t dim) {
  if (!node->is_leaf()) {
    // A concatenation is never along a dim of size 1.
    return map_children(*node, node->cat_dim - (node->cat_dim > dim ? 1 : 0),
                        [&](const ViewNodePtr& child) { return drop_dim(child, dim); });
  }
  std::vector<Factors> dims = node->dims;
  dims.erase(dims.begin() + dim);
  return leaf_of(*node, node->start, std::move(dims));
}

ViewNodePtr insert_dim(const ViewNodePtr& node, int64_t dim) {
  if (!node->is_leaf()) {
    return map_children(*node, node->cat_dim + (node->cat_dim >= dim ? 1 : 0),
                        [&](const ViewNodePtr& child) { return insert_dim(child, dim); });
  }
  std::vector<Factors> dims = node->dims;
  dims.insert(dims.begin() + dim, Factors{});
  return leaf_of(*node, node->start, std::move(dims));
}

ViewNodePtr permute_node(const ViewNodePtr& node, std::span<const int64_t> order) {
  if (!node->is_leaf()) {
    const auto place = std::find(order.begin(), order.end(), node->cat_dim) - order.begin();
    return map_children(*node, place,
                        [&](const ViewNodePtr& child) { return permute_node(child, order); });
  }
  std::vector<Factors> dims;
  for (const int64_t dim : order) dims.push_back(node->dims[static_cast<size_t>(dim)]);
  return leaf_of(*node, node->start, std::move(dims));
}

ViewNodePtr flatten_node(const ViewNodePtr& node, int64_t first, int64_t last) {
  if (first == last) return node;
  if (node->is_leaf()) {
    Factors merged;
    std::vector<Factors> dims = node->dims;
    for (int64_t dim = first; dim <= last; ++dim) {
      const Factors& factors = dims[static_cast<size_t>(dim)];
      merged.insert(merged.end(), factors.begin(), factors.end());
    }
    dims.erase(dims.begin() + first + 1, dims.begin() + last + 1);
    dims[static_cast<size_t>(first)] = coalesce(merged);
    return leaf_of(*node, node->start, std::move(dims));
  }
  const int64_t cat_dim = node->cat_dim;
  if (cat_dim <= first || cat_dim > last) {
    return map_children(*node, cat_dim > last ? cat_dim - (last - first) : cat_dim,
                        [&](const ViewNodePtr& child) { return flatten_node(child, first, last); });
  }
  // Pieces that lie side by side inside the merged dims are repeated, one after another, for each
  // outer index.
  check_pieces(*node, static_cast<size_t>(size_of(node, first)));
  CatBuilder builder(first);
  for (int64_t i = 0; i < size_of(node, first); ++i) {
    const ViewNodePtr row = drop_dim(narrow_node(node, first, i, 1), first);
    builder.add(flatten_node(row, first, last - 1));
  }
  return builder.finish();
}

namespace {

// If digits or pieces don't fall on the new dims' edges, each index of the first is handled alone.
ViewNodePtr unflatten_by_index(const ViewNodePtr& node, int64_t dim,
                               std::span<const int64_t> sizes) {
  const auto rest = sizes.subspan(1);
  int64_t inner = 1;
  for (const int64_t size : rest) inner *= size;
  check_pieces(*node, static_cast<size_t>(sizes[0]));
  CatBuilder builder(dim);
  for (int64_t i = 0; i < sizes[0]; ++i) {
    const ViewNodePtr part = narrow_node(node, dim, i * inner, inner);
    builder.add(insert_dim(unflatten_node(part, dim, rest), dim));
  }
  return builder.finish();
}

}  // namespace

ViewNodePtr unflatten_node(const ViewNodePtr& node, int64_t dim, std::span<const int64_t> sizes) {
  if (sizes.size() == 1) return node;
  if (node->is_leaf()) {
    auto split = split_factors(node->dims[static_cast<size_t>(dim)], sizes);
    if (!split) return unflatten_by_index(node, dim, sizes);
    std::vector<Factors> dims = node->dims;
    dims.erase(dims.begin() + dim);
    dims.insert(dims.begin() + dim, split->begin(), split->end());
    return leaf_of(*node, node->start, std::move(dims));
  }
  const int64_t cat_dim = node->cat_dim;
  if (cat_dim != dim) {
    const auto added = static_cast<int64_t>(sizes.size()) - 1;
    return map_children(
        *node, cat_dim > dim ? cat_dim + added : cat_dim,
        [&](const ViewNodePtr& child) { return unflatten_node(child, dim, sizes); });
  }
  int64_t inner = 1;
  for (const int64_t size : sizes.subspan(1)) inner *= size;
  for (const ViewNodePtr& child : node->children) {
    if (size_of(child, dim) % inner != 0) return unflatten_by_index(node, dim, sizes);
  }
  return map_children(*node, dim, [&](const ViewNodePtr& child) {
    std::vector<int64_t> own(sizes.begin(), sizes.end());
    own[0] = size_of(child, dim) / inner;
    return unflatten_node(child, dim, own);
  });
}

ViewNodePtr repeat_node(const ViewNodePtr& node, int64_t dim, int64_t times) {
  if (!node->is_leaf()) {
    return map_children(*node, node->cat_dim,
                        [&](const ViewNodePtr& child) { return repeat_node(child, dim, times); });
  }
  std::vector<Factors> dims = node->dims;
  Factors& factors = dims[static_cast<size_t>(dim)];
  factors.push_back({times, 0});
  factors = coalesce(factors);
  return leaf_of(*node, node->start, std::move(dims));
}

}  // namespace weft::io
