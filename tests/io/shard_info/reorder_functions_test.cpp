#include <gtest/gtest.h>

#include "tests/core/error_text.h"
#include "tests/io/views/naive_array.h"
#include "weft/core/error.h"
#include "weft/io/shard_info/function_table.h"

namespace weft::io {
namespace {

using testing::error_text;
using testing::expect_same;
using testing::NaiveArray;
using testing::tensor;
using testing::unit_numbers;

using Ints = std::vector<int64_t>;
using Arguments = std::vector<Argument>;

View reorder(const std::string& name, const Arguments& arguments, const std::vector<View>& inputs) {
  const FunctionTable table;
  const ViewFunction& function = *table.find(name, "test").view;
  check_arguments(function, arguments, "test");
  EXPECT_EQ(function.kind, FunctionKind::kReorder);
  return function.apply({inputs, arguments});
}

const NaiveArray kWhole = NaiveArray::of({12, 5});

TEST(ReorderFunctions, OfOneViewOperation) {
  const std::vector<View> in = {tensor({12, 5})};
  expect_same(reorder("narrow", {0, 3, 4}, in), kWhole.narrow(0, 3, 4));
  expect_same(reorder("select", {1, 2}, in), kWhole.select(1, 2));
  expect_same(reorder("ranges", {0, Ints{8, 1}, Ints{2, 1}}, in),
              NaiveArray::cat({kWhole.narrow(0, 8, 2), kWhole.narrow(0, 1, 1)}, 0));
  EXPECT_EQ(error_text([&] {
              reorder("ranges", {0, Ints{8, 1}, Ints{2}}, in);
            }),
            "ShapeError: 2 starts and 1 lengths, expected as many of both");
  expect_same(reorder("segment", {0, Ints{2, 7, 3}, 1}, in), kWhole.narrow(0, 2, 7));
  expect_same(reorder("permute", {Ints{1, 0}}, in), kWhole.permute({1, 0}));
  expect_same(reorder("transpose", {0, 1}, in), kWhole.permute({1, 0}));
  expect_same(reorder("flatten", {0, 1}, in), kWhole.reshape({60}));
  expect_same(reorder("unflatten", {0, Ints{3, 4}}, in), kWhole.reshape({3, 4, 5}));
  expect_same(reorder("reshape", {Ints{6, 10}}, in), kWhole.reshape({6, 10}));
  expect_same(reorder("repeat", {0, 2}, in), kWhole.repeat(0, 2));
}

TEST(ReorderFunctions, OfSeveralTensors) {
  const std::vector<View> in = {tensor({2, 3}), tensor({4, 3}, 6), tensor({1, 3}, 18)};
  expect_same(reorder("cat", {0}, in), NaiveArray::of({7, 3}));
  expect_same(reorder("combine_qkv", {}, in), NaiveArray::of({7, 3}));
  expect_same(reorder("stack", {0}, {tensor({2, 3}), tensor({2, 3}, 6)}),
              NaiveArray::of({2, 2, 3}));
  EXPECT_EQ(error_text([&] { reorder("combine_qkv", {}, {in[0]}); }),
            "ShapeError: 1 tensors, expected q, k and v in \"from\"");
}

// 2 heads of 3 key and 2 value features, made of 4.
TEST(ReorderFunctions, CombineLatentHeadsPutsEachHeadsKeysBeforeItsValues) {
  const std::vector<View> in = {tensor({2, 4, 3}), tensor({2, 2, 4}, 24)};
  const NaiveArray all = NaiveArray::of({40});
  const NaiveArray keys = all.narrow(0, 0, 24).reshape({2, 4, 3}).permute({0, 2, 1});
  const NaiveArray values = all.narrow(0, 24, 16).reshape({2, 2, 4});
  expect_same(reorder("combine_latent_heads", {}, in),
              NaiveArray::cat({keys, values}, 1).reshape({10, 4}));
  EXPECT_EQ(error_text([&] { reorder("combine_latent_heads", {}, {in[0]}); }),
            "ShapeError: 1 tensors, expected keys [heads, latent, dim] and values [heads, dim, "
            "latent] in \"from\"");
}

TEST(ReorderFunctions, InterleaveTakesOneOfEachPartInTurn) {
  const NaiveArray interleaved = kWhole.reshape({3, 4, 5}).permute({1, 0, 2}).reshape({12, 5});
  const View view = reorder("interleave", {0, 3}, {tensor({12, 5})});
  expect_same(view, interleaved);
  expect_same(reorder("deinterleave", {0, 3}, {view}), kWhole);
  EXPECT_EQ(error_text([] {
              reorder("interleave", {0, 5}, {tensor({12, 5})});
            }),
            "ShapeError: dim 0 of [12, 5] in 5 parts; expected a dim whose size is a multiple");
}

TEST(ReorderFunctions, RopeRowsAsGgufHasThemAndBack) {
  // 2 heads of 6 rows: halves 0-2 and 3-5 become pairs.
  const NaiveArray pairs = kWhole.reshape({2, 2, 3, 5}).permute({0, 2, 1, 3}).reshape({12, 5});
  const View view = reorder("permute_rope", {2}, {tensor({12, 5})});
  expect_same(view, pairs);
  expect_same(reorder("unpermute_rope", {2}, {view}), kWhole);
  expect_same(reorder("permute_rope", {2}, {reorder("unpermute_rope", {2}, {tensor({12, 5})})}),
              kWhole);
}

TEST(ReorderFunctions, QkvRowsByKvHeadAndBack) {
  // 4 heads, 2 kv heads of 3 rows.
  const NaiveArray whole = NaiveArray::of({24, 2});
  const NaiveArray grouped =
      NaiveArray::cat({whole.narrow(0, 0, 6), whole.narrow(0, 12, 3), whole.narrow(0, 18, 3),
                       whole.narrow(0, 6, 6), whole.narrow(0, 15, 3), whole.narrow(0, 21, 3)},
                      0);
  const View view = reorder("interleave_qkv", {4, 2}, {tensor({24, 2})});
  expect_same(view, grouped);
  expect_same(reorder("deinterleave_qkv", {4, 2}, {view}), whole);
  EXPECT_EQ(error_text([] {
              reorder("interleave_qkv", {4, 3}, {tensor({24, 2})});
            }),
            "ShapeError: 4 heads over 3 kv heads, expected a multiple");
  EXPECT_EQ(error_text([] {
              reorder("interleave_qkv", {0, 3}, {tensor({24, 2})});
            }),
            "ShapeError: 0 heads and 3 kv heads, expected 1 to 1048576");
}

// 2 groups of 1, 2 and 3 rows.
TEST(ReorderFunctions, UngroupPutsAllGroupsPartsTogether) {
  const auto rows = [](int64_t start, int64_t length) { return kWhole.narrow(0, start, length); };
  expect_same(
      reorder("ungroup", {2, std::vector<int64_t>{1, 2, 3}}, {tensor({12, 5})}),
      NaiveArray::cat({rows(0, 1), rows(6, 1), rows(1, 2), rows(7, 2), rows(3, 3), rows(9, 3)}, 0));
  EXPECT_EQ(error_text([] {
              reorder("ungroup", {5, std::vector<int64_t>{1}}, {tensor({12, 5})});
            }),
            "ShapeError: dim 0 of [12, 5] in 5 parts; expected a dim whose size is a multiple");
}

TEST(ReorderFunctions, UncombineQkvIsTheInverseOfCombine) {
  const std::vector<View> parts = {tensor({8, 2}), tensor({4, 2}, 16), tensor({4, 2}, 24)};
  const View fused = reorder("combine_qkv", {}, parts);
  for (size_t i = 0; i < 3; ++i) {
    const std::string part = std::string("qkv").substr(i, 1);
    const View again = reorder("uncombine_qkv", {part, 4, 2}, {fused});
    EXPECT_EQ(again.shape(), parts[i].shape());
    EXPECT_EQ(unit_numbers(again), unit_numbers(parts[i]));
  }
  // More kv heads than heads.
  EXPECT_EQ(reorder("uncombine_qkv", {std::string("k"), 8, 10}, {tensor({280, 20})}).shape(),
            (Ints{100, 20}));
  EXPECT_EQ(error_text([&] {
              reorder("uncombine_qkv", {std::string("w"), 4, 2}, {fused});
            }),
            "ShapeError: part 'w', expected 'q', 'k' or 'v'");
  EXPECT_EQ(
      error_text([&] {
        reorder("uncombine_qkv", {std::string("q"), 4, 3}, {fused});
      }),
      "ShapeError: rows of [16, 2] are no multiple of 4 + 2 * 3 heads; check the head counts");
}

}  // namespace
}  // namespace weft::io
