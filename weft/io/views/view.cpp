#include "weft/io/views/view.h"

#include <algorithm>
#include <numeric>

#include "weft/core/error.h"
#include "weft/io/views/view_node.h"

namespace weft::io {

using core::check;
using core::list_text;
using core::quote;
using core::ShapeError;
using shard::Range;

namespace {

// "io.View.narrow: 'w' [4, 6]": how the message of an operation begins.
std::string where(const char* operation, const View& view) {
  return core::join("io.View.", operation, ": ", quote(view.node()->tensor->meta.name), " ",
                    list_text(view.shape()));
}

std::vector<int64_t> without(const std::vector<int64_t>& shape, int64_t first, int64_t last) {
  std::vector<int64_t> left = shape;
  left.erase(left.begin() + first, left.begin() + last + 1);
  return left;
}

// Checks sizes that take the place of `size` and returns the new shape.
std::vector<int64_t> with_sizes(const View& view, const char* operation, int64_t dim,
                                std::span<const int64_t> sizes) {
  const std::string start = where(operation, view);
  for (const int64_t size : sizes) {
    check<ShapeError>(size >= 0, start, ": size ", size, " in ", list_text(sizes),
                      ", expected at least 0");
  }
  const int64_t count = checked_elements(sizes, start);
  check<ShapeError>(count == view.size(dim), start, ": dim ", dim, " of ", view.size(dim), " into ",
                    list_text(sizes), ", which is ", count, "; the product must be the dim's size");
  std::vector<int64_t> shape = without(view.shape(), dim, dim);
  shape.insert(shape.begin() + dim, sizes.begin(), sizes.end());
  check<ShapeError>(static_cast<int64_t>(shape.size()) <= View::kMaxDims, start, ": ", shape.size(),
                    " dims, expected at most ", View::kMaxDims);
  return shape;
}

ViewNodePtr whole_node(const TensorMeta& tensor, const Packing& packing,
                       std::vector<int64_t> shape) {
  const std::string start = core::join("io.View.of: ", quote(tensor.name));
  check<ShapeError>(static_cast<int64_t>(shape.size()) <= View::kMaxDims, start, ": ", shape.size(),
                    " dims, expected at most ", View::kMaxDims);
  for (const int64_t size : shape) {
    check<ShapeError>(size >= 0, start, ": size ", size, " in ", list_text(shape),
                      ", expected at least 0");
  }
  auto stored = std::make_shared<const StoredTensor>(StoredTensor{tensor, packing});
  return checked_elements(shape, start) == 0 ? make_empty(std::move(stored), std::move(shape))
                                             : make_leaf(std::move(stored), std::move(shape));
}

void check_same_type(const View& first, const View& other, size_t index) {
  check<ShapeError>(first.dtype() == other.dtype() && first.packing() == other.packing(),
                    where("cat", first), ": ", info(first.dtype()).name, " with ",
                    quote(other.node()->tensor->meta.name), " of ", info(other.dtype()).name,
                    " as input ", index, "; convert one of them first");
}

}  // namespace

std::string to_text(const TensorType& type) {
  return core::join(info(type.dtype).name, " ", list_text(type.shape));
}

View View::of(const TensorMeta& tensor) {
  return View(whole_node(tensor, packing_of(tensor.dtype), tensor.shape));
}

View View::of_bits(const TensorMeta& tensor, int64_t bits) {
  const Packing packing = packing_of_bits(bits);
  const Packing word = packing_of(tensor.dtype);
  check<ShapeError>(!tensor.shape.empty() && word.unit_elements == 1,
                    "io.View.of_bits: ", quote(tensor.name), " is ",
                    to_text({tensor.shape, tensor.dtype}), ", expected words in at least one dim");
  std::vector<int64_t> shape = tensor.shape;
  const bool fits = !__builtin_mul_overflow(shape.back(), word.unit_bits, &shape.back());
  check<ShapeError>(fits && shape.back() % (packing.unit_elements * bits) == 0,
                    "io.View.of_bits: ", quote(tensor.name), ": ", tensor.shape.back(),
                    " words along the last dim are no whole number of units of ",
                    packing.unit_elements, " values of ", bits, " bits; check the bits");
  shape.back() /= bits;
  return View(whole_node(tensor, packing, std::move(shape)));
}

View View::as_bits(int64_t bits) const {
  const TensorMeta& tensor = node_->tensor->meta;
  const ViewNodePtr whole = View::of(tensor).node_;
  const bool is_whole = node_->is_leaf() && whole->is_leaf() && node_->shape == whole->shape &&
                        node_->start == whole->start && node_->dims == whole->dims &&
                        node_->tensor->packing == whole->tensor->packing;
  check<ShapeError>(is_whole, where("as_bits", *this),
                    ": not the whole tensor; make this the first step");
  return of_bits(tensor, bits);
}

View View::cat(std::span<const View> views, int64_t dim) {
  check<ShapeError>(!views.empty(), "io.View.cat: no views, expected at least 1");
  const View& first = views[0];
  first.check_dim("cat", dim);
  size_t index = 0;
  int64_t size = 0;
  CatBuilder builder(dim);
  for (const View& view : views) {
    check_same_type(first, view, index);
    std::vector<int64_t> shape = view.shape();
    if (dim < view.num_dims()) shape[static_cast<size_t>(dim)] = first.size(dim);
    check<ShapeError>(shape == first.shape(), where("cat", first), ": with ",
                      quote(view.node()->tensor->meta.name), " ", list_text(view.shape()),
                      " as input ", index, " along dim ", dim, "; all other sizes must agree");
    check<ShapeError>(!__builtin_add_overflow(size, view.size(dim), &size), where("cat", first),
                      ": the sizes along dim ", dim, " sum to more than 2^63");
    builder.add(view.node_);
    ++index;
  }
  std::vector<int64_t> shape = first.shape();
  shape[static_cast<size_t>(dim)] = size;
  return checked_elements(shape, where("cat", first)) > 0
             ? View(builder.finish())
             : View(make_empty(first.node_->tensor, std::move(shape)));
}

View View::stack(std::span<const View> views, int64_t dim) {
  check<ShapeError>(!views.empty(), "io.View.stack: no views, expected at least 1");
  std::vector<View> parts;
  for (const View& view : views) {
    check<ShapeError>(dim >= 0 && dim <= view.num_dims() && view.num_dims() < kMaxDims,
                      where("stack", view), ": new dim ", dim, ", expected 0 to ",
                      std::min(view.num_dims(), kMaxDims - 1));
    if (view.num_elements() > 0) {
      parts.push_back(View(insert_dim(view.node_, dim)));
    } else {
      std::vector<int64_t> shape = view.shape();
      shape.insert(shape.begin() + dim, 1);
      parts.push_back(View(make_empty(view.node_->tensor, std::move(shape))));
    }
  }
  return cat(parts, dim);
}

const std::vector<int64_t>& View::shape() const { return node_->shape; }

int64_t View::size(int64_t dim) const { return node_->shape[static_cast<size_t>(dim)]; }

Dtype View::dtype() const { return node_->tensor->meta.dtype; }

const std::string& View::tensor_name() const { return node_->tensor->meta.name; }

Packing View::packing() const { return node_->tensor->packing; }

int64_t View::num_elements() const { return checked_elements(shape(), "io.View"); }

size_t View::num_pieces() const { return node_->num_leaves; }

void View::check_dim(const char* operation, int64_t dim) const {
  check<ShapeError>(dim >= 0 && dim < num_dims(), where(operation, *this), ": dim ", dim,
                    ", expected 0 to ", num_dims() - 1);
}

View View::narrow(int64_t dim, int64_t start, int64_t length) const {
  check_dim("narrow", dim);
  const bool is_inside =
      start >= 0 && length >= 0 && start <= size(dim) && length <= size(dim) - start;
  check<ShapeError>(is_inside, where("narrow", *this), ": ", length, " from ", start, " of dim ",
                    dim, ", expected them within ", size(dim));
  if (length == 0 || num_elements() == 0) {
    std::vector<int64_t> shape = node_->shape;
    shape[static_cast<size_t>(dim)] = length;
    return View(make_empty(node_->tensor, std::move(shape)));
  }
  return View(narrow_node(node_, dim, start, length));
}

View View::select(int64_t dim, int64_t index) const {
  check_dim("select", dim);
  check<ShapeError>(index >= 0 && index < size(dim), where("select", *this), ": index ", index,
                    " of dim ", dim, ", expected 0 to ", size(dim) - 1);
  if (num_elements() == 0) {
    return View(make_empty(node_->tensor, without(shape(), dim, dim)));
  }
  return View(drop_dim(narrow_node(node_, dim, index, 1), dim));
}

View View::permute(std::span<const int64_t> order) const {
  std::vector<int64_t> sorted(order.begin(), order.end());
  std::sort(sorted.begin(), sorted.end());
  std::vector<int64_t> all(static_cast<size_t>(num_dims()));
  std::iota(all.begin(), all.end(), 0);
  check<ShapeError>(sorted == all, where("permute", *this), ": order ", list_text(order),
                    ", expected each of the ", num_dims(), " dims once");
  if (num_elements() > 0) return View(permute_node(node_, order));
  std::vector<int64_t> permuted;
  for (const int64_t dim : order) permuted.push_back(size(dim));
  return View(make_empty(node_->tensor, std::move(permuted)));
}

View View::flatten(int64_t first, int64_t last) const {
  check_dim("flatten", first);
  check_dim("flatten", last);
  check<ShapeError>(first <= last, where("flatten", *this), ": dims ", first, " to ", last,
                    ", expected the first before the last");
  if (num_elements() > 0) return View(flatten_node(node_, first, last));
  const auto begin = shape().begin();
  const std::vector<int64_t> merged(begin + first, begin + last + 1);
  std::vector<int64_t> left = without(shape(), first, last);
  left.insert(left.begin() + first, checked_elements(merged, where("flatten", *this)));
  return View(make_empty(node_->tensor, std::move(left)));
}

View View::unflatten(int64_t dim, std::span<const int64_t> sizes) const {
  check_dim("unflatten", dim);
  check<ShapeError>(!sizes.empty(), where("unflatten", *this), ": no sizes, expected at least 1");
  std::vector<int64_t> shape = with_sizes(*this, "unflatten", dim, sizes);
  if (num_elements() == 0) return View(make_empty(node_->tensor, std::move(shape)));
  return View(unflatten_node(node_, dim, sizes));
}

View View::reshape(std::span<const int64_t> shape) const {
  View flat = num_dims() == 0 ? View(num_elements() > 0 ? insert_dim(node_, 0) : node_)
                              : flatten(0, num_dims() - 1);
  if (shape.empty()) {
    check<ShapeError>(num_elements() == 1, where("reshape", *this), ": to [], expected 1 element");
    return flat.select(0, 0);
  }
  std::vector<int64_t> checked = with_sizes(flat, "reshape", 0, shape);
  if (num_elements() == 0) return View(make_empty(node_->tensor, std::move(checked)));
  return View(unflatten_node(flat.node_, 0, shape));
}

View View::repeat(int64_t dim, int64_t times) const {
  check_dim("repeat", dim);
  std::vector<int64_t> shape = node_->shape;
  int64_t& repeated = shape[static_cast<size_t>(dim)];
  check<ShapeError>(times >= 1 && !__builtin_mul_overflow(repeated, times, &repeated),
                    where("repeat", *this), ": ", times, " times along dim ", dim,
                    ", expected at least 1 and a size below 2^63");
  if (checked_elements(shape, where("repeat", *this)) == 0) {
    return View(make_empty(node_->tensor, std::move(shape)));
  }
  return View(repeat_node(node_, dim, times));
}

View View::ranges(int64_t dim, std::span<const Range> ranges) const {
  check_dim("ranges", dim);
  check<ShapeError>(!ranges.empty(), where("ranges", *this), ": no ranges, expected at least 1");
  std::vector<View> parts;
  for (const Range& range : ranges) {
    check<ShapeError>(parts.size() < kMaxPieces, where("ranges", *this), ": more than ", kMaxPieces,
                      " ranges");
    parts.push_back(narrow(dim, range.start, range.length));
  }
  return cat(parts, dim);
}

View View::segment(int64_t dim, std::span<const int64_t> lengths, int64_t index) const {
  check_dim("segment", dim);
  check<ShapeError>(index >= 0 && index < static_cast<int64_t>(lengths.size()),
                    where("segment", *this), ": segment ", index, " of ", list_text(lengths),
                    ", expected 0 to ", static_cast<int64_t>(lengths.size()) - 1);
  const shard::Split split{dim, {lengths.begin(), lengths.end()}, 1};
  // Of one rank each range is the whole segment.
  const std::vector<Range> all =
      shard::slices(split, size(dim), 1, 0, where("segment", *this) + ": dim");
  const Range& range = all[static_cast<size_t>(index)];
  return narrow(dim, range.start, range.length);
}

View View::shard(const shard::Split& split, int64_t n, int64_t rank) const {
  check_dim("shard", split.dim);
  const std::string start = core::join(where("shard", *this), ": dim ", split.dim);
  return ranges(split.dim, shard::slices(split, size(split.dim), n, rank, start));
}

}  // namespace weft::io
