#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <numeric>

#include "tests/core/error_text.h"
#include "tests/io/views/naive_array.h"
#include "weft/core/error.h"
#include "weft/io/views/view.h"
#include "weft/io/views/view_node.h"

// Random programs of operations on random tensors, each compared with indexing one by one.

namespace weft::io {
namespace {

using testing::NaiveArray;
using testing::tensor_meta;
using testing::unit_numbers;

using Ints = std::vector<int64_t>;

constexpr size_t kMaxElements = 4000;

// A view, and what it must be. `column_unit`: what the last dim is cut and reordered by.
struct Pair {
  View view;
  NaiveArray array;
};

int64_t pick(int64_t first, int64_t last) { return *rc::gen::inRange<int64_t>(first, last + 1); }

Ints divisors(int64_t size) {
  Ints list;
  for (int64_t i = 1; i <= size; ++i) {
    if (size % i == 0) list.push_back(i);
  }
  return list;
}

Pair do_narrow(const Pair& in, int64_t dim) {
  const int64_t size = in.view.size(dim);
  const int64_t start = pick(0, size);
  const int64_t length = pick(size > 3 ? std::min<int64_t>(1, size - start) : 0, size - start);
  return {in.view.narrow(dim, start, length),
          in.array.narrow(static_cast<size_t>(dim), start, length)};
}

Pair do_permute(const Pair& in) {
  Ints order(in.array.shape.size());
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = order.size(); i > 1; --i) {
    std::swap(order[i - 1], order[static_cast<size_t>(pick(0, static_cast<int64_t>(i) - 1))]);
  }
  return {in.view.permute(order), in.array.permute(order)};
}

Pair do_flatten(const Pair& in, int64_t first) {
  const int64_t last = pick(first, in.view.num_dims() - 1);
  const View view = in.view.flatten(first, last);
  return {view, in.array.reshape(view.shape())};
}

Pair do_unflatten(const Pair& in, int64_t dim) {
  if (in.view.size(dim) == 0 || in.view.num_dims() > 6) return in;
  const Ints outer = divisors(in.view.size(dim));
  const int64_t first = outer[static_cast<size_t>(pick(0, static_cast<int64_t>(outer.size()) - 1))];
  const View view = in.view.unflatten(dim, Ints{first, in.view.size(dim) / first});
  return {view, in.array.reshape(view.shape())};
}

Pair do_repeat(const Pair& in, int64_t dim) {
  if (in.array.count() * 3 > kMaxElements) return in;
  const int64_t times = pick(1, 3);
  return {in.view.repeat(dim, times), in.array.repeat(static_cast<size_t>(dim), times)};
}

// Several ranges of the view itself, which may overlap and come in any order.
Pair do_cat(const Pair& in, int64_t dim) {
  std::vector<View> views;
  std::vector<NaiveArray> arrays;
  size_t count = 0;
  for (int64_t i = pick(1, 4); i > 0; --i) {
    const Pair part = do_narrow(in, dim);
    count += part.array.count();
    if (!views.empty() && count > kMaxElements) break;
    views.push_back(part.view);
    arrays.push_back(part.array);
  }
  return {View::cat(views, dim), NaiveArray::cat(arrays, static_cast<size_t>(dim))};
}

Pair do_shard(const Pair& in, int64_t dim) {
  const int64_t size = in.view.size(dim);
  if (size < 2) return in;
  const int64_t first = pick(1, size - 1);
  const shard::Split split{dim, {first, size - first}, 1};
  const int64_t n = pick(1, std::min<int64_t>(4, std::min(first, size - first)));
  const int64_t rank = pick(0, n - 1);
  std::vector<NaiveArray> arrays;
  for (const shard::Range& range : shard::slices(split, size, n, rank, "test")) {
    arrays.push_back(in.array.narrow(static_cast<size_t>(dim), range.start, range.length));
  }
  return {in.view.shard(split, n, rank), NaiveArray::cat(arrays, static_cast<size_t>(dim))};
}

Pair random_step(const Pair& in) {
  if (in.view.num_dims() == 0) return {in.view.reshape(Ints{1}), in.array.reshape({1})};
  const int64_t dim = pick(0, in.view.num_dims() - 1);
  switch (pick(0, 8)) {
    case 0:
      return do_narrow(in, dim);
    case 1:
      return do_permute(in);
    case 2:
      return do_flatten(in, dim);
    case 3:
      return do_unflatten(in, dim);
    case 4:
      return do_repeat(in, dim);
    case 5:
      return do_cat(in, dim);
    case 6:
      return do_shard(in, dim);
    case 7:
      return do_permute(in);
    default: {
      if (in.view.size(dim) == 0 || in.view.num_dims() < 2) return in;
      const int64_t index = pick(0, in.view.size(dim) - 1);
      return {in.view.select(dim, index), in.array.select(static_cast<size_t>(dim), index)};
    }
  }
}

Pair random_start() {
  Ints shape(static_cast<size_t>(pick(0, 4)));
  for (int64_t& size : shape) size = pick(1, 7);
  if (pick(0, 20) == 0 && !shape.empty()) shape[0] = 0;
  return {View::of(tensor_meta("w", Dtype::kU8, shape)), NaiveArray::of(shape)};
}

// Size of a dim, whatever the tree: leaves' digits multiply up to the shape.
void check_tree(const ViewNode& node) {
  size_t leaves = 0;
  for (const ViewNodePtr& child : node.children) {
    RC_ASSERT((child->is_leaf() || child->cat_dim != node.cat_dim));
    RC_ASSERT(child->shape[static_cast<size_t>(node.cat_dim)] >= 1);
    leaves += child->num_leaves;
    check_tree(*child);
  }
  if (!node.is_leaf()) {
    RC_ASSERT(node.children.size() >= 2u);
    RC_ASSERT(node.num_leaves >= node.children.size());
  }
  RC_ASSERT((node.is_leaf() || node.num_leaves >= leaves));
}

TEST(ViewProperties, RandomProgramsEqualNaiveIndexing) {
  EXPECT_TRUE(rc::check([] {
    Pair pair = random_start();
    for (int64_t steps = pick(1, 12); steps > 0; --steps) pair = random_step(pair);
    RC_ASSERT(pair.view.shape() == pair.array.shape);
    RC_ASSERT(unit_numbers(pair.view) == pair.array.values);
    RC_ASSERT(pair.view.num_bytes() == pair.array.values.size());
    check_tree(*pair.view.node());
  }));
}

TEST(ViewProperties, RunsAreExactAndJoined) {
  EXPECT_TRUE(rc::check([] {
    Pair pair = random_start();
    for (int64_t steps = pick(1, 8); steps > 0; --steps) pair = random_step(pair);
    const std::vector<ByteRun> runs = pair.view.runs();
    RC_ASSERT(runs.size() <= pair.view.max_runs());
    uint64_t bytes = 0;
    uint64_t first = UINT64_MAX;
    for (size_t i = 0; i < runs.size(); ++i) {
      RC_ASSERT(runs[i].num_bytes > 0u);
      if (i > 0) RC_ASSERT(runs[i - 1].offset + runs[i - 1].num_bytes != runs[i].offset);
      bytes += runs[i].num_bytes;
      first = std::min(first, runs[i].offset);
    }
    RC_ASSERT(bytes == pair.view.num_bytes());
    if (!runs.empty()) RC_ASSERT(pair.view.first_byte().offset == first);
  }));
}

TEST(ViewProperties, ShardsOfAnyViewAreTheWhole) {
  EXPECT_TRUE(rc::check([] {
    Pair pair = random_start();
    for (int64_t steps = pick(0, 6); steps > 0; --steps) pair = random_step(pair);
    if (pair.view.num_dims() == 0) return;
    const int64_t dim = pick(0, pair.view.num_dims() - 1);
    if (pair.view.size(dim) == 0) return;
    const int64_t n = pick(1, pair.view.size(dim));
    std::vector<View> shards;
    for (int64_t rank = 0; rank < n; ++rank) {
      shards.push_back(pair.view.shard({dim, {}, 1}, n, rank));
    }
    RC_ASSERT(unit_numbers(View::cat(shards, dim)) == pair.array.values);
  }));
}

// A view in elements of 4-element units is right exactly if it is units in order; otherwise
// refused.
TEST(ViewProperties, PackedProgramsAreRightOrRefused) {
  int refused = 0;
  EXPECT_TRUE(rc::check([&] {
    Ints shape(static_cast<size_t>(pick(0, 2)));
    for (int64_t& size : shape) size = pick(1, 5);
    shape.push_back(4 * pick(1, 4));
    Ints words = shape;
    words.back() /= 4;
    Pair pair{View::of_bits(tensor_meta("w", Dtype::kU32, words), 8), NaiveArray::of(shape)};
    for (int64_t steps = pick(1, 5); steps > 0; --steps) pair = random_step(pair);
    std::vector<int64_t> numbers;
    try {
      numbers = unit_numbers(pair.view);
    } catch (const core::ShapeError&) {
      ++refused;
      return;
    }
    RC_ASSERT(numbers.size() * 4 == pair.array.values.size());
    RC_ASSERT((pair.array.values.empty() || pair.array.shape.back() % 4 == 0));
    for (size_t i = 0; i < pair.array.values.size(); ++i) {
      RC_ASSERT(pair.array.values[i] == numbers[i / 4] * 4 + static_cast<int64_t>(i % 4));
    }
  }));
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace weft::io
