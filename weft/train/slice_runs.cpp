#include "weft/train/slice_runs.h"

#include <algorithm>

#include "weft/core/checked.h"
#include "weft/core/error.h"

namespace weft::train {

using core::check;
using core::ShapeError;
using shard::Range;

namespace {

int64_t product(const std::vector<int64_t>& sizes, size_t begin, size_t end) {
  int64_t count = 1;
  for (size_t i = begin; i < end; ++i) count *= sizes[i];
  return count;
}

// A whole seen as rows of runs: row r holds elements [r * whole_row, (r + 1) * whole_row), and the
// shard has these parts of each.
struct Rows {
  int64_t whole_row = 0;
  int64_t shard_row = 0;
  std::vector<Range> parts;
};

Rows rows_of(const Slice& slice) {
  const int64_t all = product(slice.sizes, 0, slice.sizes.size());
  if (!slice.cut) return {all, all, {{0, all}}};
  const auto dim = static_cast<size_t>(slice.cut->dim);
  const int64_t inner = product(slice.sizes, dim + 1, slice.sizes.size());
  Rows rows;
  rows.whole_row = slice.sizes[dim] * inner;
  for (const Range& range : slice.cut->of(slice.model_rank)) {
    rows.parts.push_back({range.start * inner, range.length * inner});
    rows.shard_row += range.length * inner;
  }
  return rows;
}

void append(std::vector<SliceRun>& runs, const SliceRun& run) {
  if (run.length == 0) return;
  if (!runs.empty()) {
    SliceRun& last = runs.back();
    if (last.whole + last.length == run.whole && last.offset + last.length == run.offset) {
      last.length += run.length;
      return;
    }
  }
  runs.push_back(run);
}

// The part of one row that lies in `elements` of the shard.
void append_row(std::vector<SliceRun>& runs, const Rows& rows, int64_t row, const Range& elements) {
  int64_t at = row * rows.shard_row;
  for (const Range& part : rows.parts) {
    const int64_t begin = std::max(at, elements.start);
    const int64_t end = std::min(at + part.length, elements.end());
    if (begin < end) {
      append(runs, {row * rows.whole_row + part.start + (begin - at), begin - elements.start,
                    end - begin});
    }
    at += part.length;
  }
}

}  // namespace

int64_t count_elements(const std::vector<int64_t>& sizes, const std::string& where) {
  int64_t count = 1;
  for (const int64_t size : sizes) {
    check<ShapeError>(size >= 0 && !__builtin_mul_overflow(count, size, &count), where, ": sizes ",
                      core::list_text(sizes),
                      ": expected sizes of at least 0 and a product of 63 "
                      "bits");
  }
  return count;
}

int64_t shard_elements(const Slice& slice) {
  const int64_t all = product(slice.sizes, 0, slice.sizes.size());
  if (!slice.cut || all == 0) return all;
  const int64_t size = slice.sizes[static_cast<size_t>(slice.cut->dim)];
  return all / size * shard::total_length(slice.cut->of(slice.model_rank));
}

void check_slice(const Slice& slice, const std::string& where) {
  count_elements(slice.sizes, where);
  if (slice.cut) {
    const auto num_dims = static_cast<int64_t>(slice.sizes.size());
    check<ShapeError>(slice.cut->dim >= 0 && slice.cut->dim < num_dims &&
                          slice.cut->size == slice.sizes[static_cast<size_t>(slice.cut->dim)],
                      where, ": a cut of ", slice.cut->size, " along dim ", slice.cut->dim,
                      ", expected one of the sizes ", core::list_text(slice.sizes));
    check<ShapeError>(slice.model_rank >= 0 && slice.model_rank < slice.cut->num_ranks(), where,
                      ": model rank ", slice.model_rank, " of a cut for ", slice.cut->num_ranks());
    shard::check_layout(*slice.cut, where);
  }
  const Range& elements = slice.elements;
  const int64_t held = shard_elements(slice);
  check<ShapeError>(elements.start >= 0 && elements.length >= 0 && elements.start <= held &&
                        elements.length <= held - elements.start,
                    where, ": ", elements.length, " elements from ", elements.start,
                    " of a shard of ", held);
}

std::vector<SliceRun> slice_runs(const Slice& slice) {
  std::vector<SliceRun> runs;
  if (slice.elements.length == 0) return runs;
  const Rows rows = rows_of(slice);
  const int64_t last = (slice.elements.end() - 1) / rows.shard_row;
  for (int64_t row = slice.elements.start / rows.shard_row; row <= last; ++row) {
    append_row(runs, rows, row, slice.elements);
  }
  std::sort(runs.begin(), runs.end(),
            [](const SliceRun& a, const SliceRun& b) { return a.whole < b.whole; });
  return runs;
}

std::vector<SharedRun> take_runs(std::vector<SliceRun>& wanted, const std::vector<SliceRun>& held) {
  std::vector<SharedRun> shared;
  std::vector<SliceRun> left;
  auto source = held.begin();
  for (SliceRun run : wanted) {
    while (run.length > 0) {
      while (source != held.end() && source->whole + source->length <= run.whole) ++source;
      if (source == held.end() || source->whole >= run.whole + run.length) break;
      const int64_t before = std::max<int64_t>(source->whole - run.whole, 0);
      if (before > 0) left.push_back({run.whole, run.offset, before});
      const int64_t begin = run.whole + before;
      const int64_t end = std::min(run.whole + run.length, source->whole + source->length);
      shared.push_back(
          {run.offset + before, source->offset + (begin - source->whole), end - begin});
      run = {end, run.offset + (end - run.whole), run.whole + run.length - end};
    }
    if (run.length > 0) left.push_back(run);
  }
  wanted = std::move(left);
  return shared;
}

}  // namespace weft::train
