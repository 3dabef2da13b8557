#include <algorithm>
#include <queue>
#include <tuple>

#include "weft/core/error.h"
#include "weft/io/views/view.h"
#include "weft/io/views/view_node.h"

namespace weft::io {

using core::check;
using core::ShapeError;

namespace {

// One loop over a leaf: `count` steps in the tensor and in the view's row-major order, in elements.
struct Loop {
  int64_t count = 1;
  int64_t source_step = 0;
  int64_t view_step = 0;
};

// A leaf as loops around runs of `run_length` elements, slowest loop first.
struct LeafLoops {
  const StoredTensor* tensor = nullptr;
  std::vector<Loop> loops;
  int64_t source_start = 0;
  int64_t view_start = 0;
  int64_t run_length = 1;
};

std::vector<int64_t> row_major_strides(const std::vector<int64_t>& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
  return strides;
}

void add_loop(std::vector<Loop>& loops, const Loop& loop) {
  if (loop.count == 1) return;
  if (!loops.empty() && loops.back().source_step == loop.source_step * loop.count &&
      loops.back().view_step == loop.view_step * loop.count) {
    loops.back() = {loops.back().count * loop.count, loop.source_step, loop.view_step};
  } else {
    loops.push_back(loop);
  }
}

LeafLoops leaf_loops(const ViewNode& leaf, int64_t view_start,
                     const std::vector<int64_t>& view_strides) {
  LeafLoops result;
  result.tensor = leaf.tensor.get();
  result.source_start = leaf.start;
  result.view_start = view_start;
  for (size_t dim = 0; dim < leaf.dims.size(); ++dim) {
    int64_t step = view_strides[dim] * leaf.shape[dim];
    for (const Factor& factor : leaf.dims[dim]) {
      step /= factor.count;
      add_loop(result.loops, {factor.count, factor.stride, step});
    }
  }
  if (!result.loops.empty() && result.loops.back().source_step == 1 &&
      result.loops.back().view_step == 1) {
    result.run_length = result.loops.back().count;
    result.loops.pop_back();
  }
  return result;
}

void collect_loops(const ViewNode& node, int64_t view_start,
                   const std::vector<int64_t>& view_strides, std::vector<LeafLoops>& leaves) {
  if (node.is_leaf()) {
    leaves.push_back(leaf_loops(node, view_start, view_strides));
    return;
  }
  const auto dim = static_cast<size_t>(node.cat_dim);
  for (const ViewNodePtr& child : node.children) {
    collect_loops(*child, view_start, view_strides, leaves);
    view_start += child->shape[dim] * view_strides[dim];
  }
}

std::vector<LeafLoops> loops_of(const View& view) {
  std::vector<LeafLoops> leaves;
  if (view.num_elements() > 0) {
    leaves.reserve(view.num_pieces());
    collect_loops(*view.node(), 0, row_major_strides(view.shape()), leaves);
  }
  return leaves;
}

void check_edge(const StoredTensor& tensor, const char* what, int64_t edge) {
  const int64_t unit = tensor.packing.unit_elements;
  if (edge % unit == 0) return;
  core::fail<ShapeError>("io.View: ", core::quote(tensor.meta.name), " (",
                         info(tensor.meta.dtype).name, "): ", what, " ", edge, " cuts a unit of ",
                         unit, " elements in ", tensor.packing.unit_bytes(), " bytes, expected ",
                         edge / unit * unit, " or ", (edge / unit + 1) * unit,
                         "; cut and reorder by multiples of ", unit);
}

void check_leaf_units(const LeafLoops& leaf) {
  check_edge(*leaf.tensor, "a run of length", leaf.run_length);
  check_edge(*leaf.tensor, "a run from element", leaf.source_start);
  for (const Loop& loop : leaf.loops) {
    check_edge(*leaf.tensor, "a step of", loop.source_step);
  }
}

// Goes through the runs of a leaf, in the view's order.
class LeafCursor {
 public:
  explicit LeafCursor(LeafLoops leaf)
      : leaf_(std::move(leaf)), index_(leaf_.loops.size(), 0), place_(leaf_.view_start) {
    element_ = leaf_.source_start;
  }

  int64_t place() const { return place_; }
  ByteRun run() const {
    const Packing& packing = leaf_.tensor->packing;
    const auto bytes = [&](int64_t elements) {
      return static_cast<uint64_t>(elements / packing.unit_elements * packing.unit_bytes());
    };
    const TensorMeta& meta = leaf_.tensor->meta;
    return {meta.file, meta.offset + bytes(element_), bytes(leaf_.run_length)};
  }
  // False after the last.
  bool next() {
    for (size_t i = leaf_.loops.size(); i > 0; --i) {
      const Loop& loop = leaf_.loops[i - 1];
      if (++index_[i - 1] < loop.count) {
        element_ += loop.source_step;
        place_ += loop.view_step;
        return true;
      }
      index_[i - 1] = 0;
      element_ -= loop.source_step * (loop.count - 1);
      place_ -= loop.view_step * (loop.count - 1);
    }
    return false;
  }

 private:
  LeafLoops leaf_;
  std::vector<int64_t> index_;
  int64_t place_ = 0;
  int64_t element_ = 0;
};

// Joins runs that adjoin in the file.
class RunJoiner {
 public:
  explicit RunJoiner(const std::function<void(const ByteRun&)>& visit) : visit_(visit) {}
  void add(const ByteRun& run) {
    if (run_.num_bytes > 0 && run_.file == run.file && run_.offset + run_.num_bytes == run.offset) {
      run_.num_bytes += run.num_bytes;
      return;
    }
    flush();
    run_ = run;
  }
  void flush() {
    if (run_.num_bytes > 0) visit_(run_);
  }

 private:
  const std::function<void(const ByteRun&)>& visit_;
  ByteRun run_;
};

}  // namespace

void View::check_units() const {
  const int64_t unit = packing().unit_elements;
  if (unit == 1 || num_elements() == 0) return;
  const StoredTensor& tensor = *node_->tensor;
  check_edge(tensor, "a last dim of", shape().empty() ? 1 : shape().back());
  for (const LeafLoops& leaf : loops_of(*this)) check_leaf_units(leaf);
}

uint64_t View::num_bytes() const {
  check_units();
  const Packing packed = packing();
  uint64_t bytes = 0;
  const auto units = static_cast<uint64_t>(num_elements() / packed.unit_elements);
  check<ShapeError>(
      !__builtin_mul_overflow(units, static_cast<uint64_t>(packed.unit_bytes()), &bytes) &&
          bytes <= static_cast<uint64_t>(INT64_MAX),
      "io.View: ", core::quote(node_->tensor->meta.name), " ", core::list_text(shape()),
      " is more than 2^63 bytes");
  return bytes;
}

uint64_t View::max_runs() const {
  uint64_t count = 0;
  for (const LeafLoops& leaf : loops_of(*this)) {
    uint64_t runs = 1;
    for (const Loop& loop : leaf.loops) runs *= static_cast<uint64_t>(loop.count);
    count += runs;
  }
  return count;
}

ByteRun View::first_byte() const {
  ByteRun first{SIZE_MAX, 0, 0};
  for (LeafLoops& leaf : loops_of(*this)) {
    const ByteRun run = LeafCursor(std::move(leaf)).run();
    if (std::tie(run.file, run.offset) < std::tie(first.file, first.offset) ||
        first.file == SIZE_MAX) {
      first = {run.file, run.offset, 0};
    }
  }
  return first;
}

void View::for_each_run(const std::function<void(const ByteRun&)>& visit) const {
  check_units();
  std::vector<LeafCursor> cursors;
  for (LeafLoops& leaf : loops_of(*this)) cursors.emplace_back(std::move(leaf));
  using Entry = std::pair<int64_t, size_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> next;
  for (size_t i = 0; i < cursors.size(); ++i) next.emplace(cursors[i].place(), i);
  RunJoiner joiner(visit);
  while (!next.empty()) {
    const size_t i = next.top().second;
    next.pop();
    // Until another leaf's run comes first; steps are positive, so a leaf's runs come in order.
    do {
      joiner.add(cursors[i].run());
      if (!cursors[i].next()) break;
      if (!next.empty() && cursors[i].place() > next.top().first) {
        next.emplace(cursors[i].place(), i);
        break;
      }
    } while (true);
  }
  joiner.flush();
}

std::vector<ByteRun> View::runs(uint64_t max_runs_kept) const {
  const uint64_t count = max_runs();
  check<ShapeError>(count <= max_runs_kept, "io.View: ", core::quote(node_->tensor->meta.name), " ",
                    core::list_text(shape()), " is ", count, " runs of bytes, expected at most ",
                    max_runs_kept, "; cut along a slower dim");
  std::vector<ByteRun> list;
  for_each_run([&](const ByteRun& run) { list.push_back(run); });
  return list;
}

}  // namespace weft::io
