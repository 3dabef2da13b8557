#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weft/io/tensor_file.h"
#include "weft/io/views/packing.h"
#include "weft/shard/split.h"

namespace weft::io {

struct ViewNode;

/// Type and shape of what a view or a function yields.
struct TensorType {
  std::vector<int64_t> shape;
  Dtype dtype = Dtype::kF32;

  bool operator==(const TensorType&) const = default;
};

/// "F16 [64, 128]".
std::string to_text(const TensorType& type);

/// Elements of stored tensors in some order: an n-d array that says where each of its elements lies
/// and holds none. Pure arithmetic, a cheap value that never changes; operations give new views.
///
/// A dim's index is written in mixed radix, each digit with its own stride (leaf), so that dims
/// that were permuted and then flattened are still one leaf; leaves are concatenated along dims.
/// Every operation has a result in this form; what would need more than kMaxPieces leaves is
/// refused rather than copied. Strides and sizes count elements; bytes appear in for_each_run only,
/// which refuses a view that cuts a packing's unit apart (check_units).
///
/// All operations throw ShapeError for dims, sizes and ranges that don't fit, naming the operation
/// and the view's shape. Dims count from 0; negative ones are refused.
class View {
 public:
  /// The leaves that a view may have.
  static constexpr size_t kMaxPieces = size_t{1} << 16;
  /// Most dims of a view.
  static constexpr int64_t kMaxDims = 16;

  /// The whole tensor. Throws ShapeError if its size overflows.
  static View of(const TensorMeta& tensor);
  /// The whole tensor of integer words seen as `bits`-bit values (packing_of_bits): the last dim
  /// grows by word bits / bits. Throws ShapeError if the last dim isn't a whole number of values.
  static View of_bits(const TensorMeta& tensor, int64_t bits);
  /// The same of a view that is a whole tensor; throws ShapeError for any other.
  View as_bits(int64_t bits) const;
  /// Concatenates views of one type along `dim`; other sizes must agree.
  static View cat(std::span<const View> views, int64_t dim);
  /// Concatenates views of one shape along a new dim `dim`.
  static View stack(std::span<const View> views, int64_t dim);

  const std::vector<int64_t>& shape() const;
  int64_t num_dims() const { return static_cast<int64_t>(shape().size()); }
  /// Size of dim `dim`.
  int64_t size(int64_t dim) const;
  Dtype dtype() const;
  /// Of the (first) tensor that it points into, for messages.
  const std::string& tensor_name() const;
  Packing packing() const;
  TensorType type() const { return {shape(), dtype()}; }
  int64_t num_elements() const;
  size_t num_pieces() const;

  /// `length` indices from `start` along `dim`.
  View narrow(int64_t dim, int64_t start, int64_t length) const;
  /// Index `index` of `dim`, which goes.
  View select(int64_t dim, int64_t index) const;
  /// Dim i of the result is dim order[i].
  View permute(std::span<const int64_t> order) const;
  /// Merges dims `first` to `last` (both included) into one, row-major.
  View flatten(int64_t first, int64_t last) const;
  /// Writes dim `dim` as dims of `sizes`, row-major. The inverse of flatten.
  View unflatten(int64_t dim, std::span<const int64_t> sizes) const;
  /// The same elements, row-major, in another shape.
  View reshape(std::span<const int64_t> shape) const;
  /// Each index of `dim` `times` times, one after the other: kv heads for several ranks.
  View repeat(int64_t dim, int64_t times) const;
  /// The ranges along `dim`, one after the other. They may overlap, and come in any order.
  View ranges(int64_t dim, std::span<const shard::Range> ranges) const;
  /// Part `index` of `dim` cut into parts of `lengths`: the q of a fused qkv.
  View segment(int64_t dim, std::span<const int64_t> lengths, int64_t index) const;
  /// What rank `rank` of `n` holds by `split`: shard::slices, so balanced and never empty. Also
  /// throws ConfigError as that does.
  View shard(const shard::Split& split, int64_t n, int64_t rank) const;

  /// Throws ShapeError, naming the tensor, the edge and the unit, if the view cuts units apart or
  /// they don't lie along the last dim.
  void check_units() const;
  /// Bytes of the view. Throws as check_units.
  uint64_t num_bytes() const;
  /// How many runs at most; for_each_run may merge some across leaves.
  uint64_t max_runs() const;
  /// The least file position that the view touches, as {file, byte, 0}.
  ByteRun first_byte() const;
  /// Calls `visit` with the exact byte runs in the view's row-major order; neighbours that adjoin
  /// in the file are one run. Memory is a few numbers per leaf. Throws as check_units, before a
  /// call.
  void for_each_run(const std::function<void(const ByteRun&)>& visit) const;
  /// The same as a list. Throws ShapeError if max_runs is above `max_runs_kept`.
  std::vector<ByteRun> runs(uint64_t max_runs_kept = uint64_t{1} << 24) const;

  /// The view's tree of leaves, for the files beside this one.
  const std::shared_ptr<const ViewNode>& node() const { return node_; }

 private:
  explicit View(std::shared_ptr<const ViewNode> node) : node_(std::move(node)) {}
  void check_dim(const char* operation, int64_t dim) const;

  std::shared_ptr<const ViewNode> node_;
};

}  // namespace weft::io
