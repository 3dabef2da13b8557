#include <gtest/gtest.h>

#include <algorithm>

#include "tests/core/error_text.h"
#include "tests/io/views/naive_array.h"
#include "weft/core/error.h"
#include "weft/io/shard_info/function_table.h"

namespace weft::io {
namespace {

using testing::error_text;
using testing::NaiveArray;
using testing::tensor;
using testing::tensor_meta;
using testing::unit_numbers;

using Ints = std::vector<int64_t>;
using Arguments = std::vector<Argument>;

View cut_view(const std::string& name, const Arguments& arguments, const View& input, int64_t n,
              int64_t rank) {
  const FunctionTable table;
  const ViewFunction& function = *table.find(name, "test").view;
  check_arguments(function, arguments, "test");
  return function.apply({std::span(&input, 1), arguments, n, rank});
}

// The elements of all ranks' shards.
Ints all_elements(const std::string& name, const Arguments& arguments, const View& input,
                  int64_t n) {
  Ints all;
  for (int64_t rank = 0; rank < n; ++rank) {
    const Ints part = unit_numbers(cut_view(name, arguments, input, n, rank));
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

TEST(ShardFunctions, ShardsAreTheWholeEachElementOnce) {
  for (const int64_t n : {1, 2, 3, 4, 8}) {
    EXPECT_EQ(all_elements("shard", {0}, tensor({24, 5}), n), NaiveArray::of({24, 5}).values);
    EXPECT_EQ(all_elements("shard", {0, 3}, tensor({24, 5}), n), NaiveArray::of({24, 5}).values);
    Ints columns = all_elements("shard", {1}, tensor({5, 25}), n);
    std::sort(columns.begin(), columns.end());
    EXPECT_EQ(columns, NaiveArray::of({5, 25}).values);
    Ints segments = all_elements("shard_segments", {0, Ints{16, 8, 8}}, tensor({32, 3}), n);
    std::sort(segments.begin(), segments.end());
    EXPECT_EQ(segments, NaiveArray::of({32, 3}).values);
    Ints runs = all_elements("shard_segment_runs", {0, Ints{16, 8, 8}, 2, 8}, tensor({32, 3}), n);
    std::sort(runs.begin(), runs.end());
    EXPECT_EQ(runs, NaiveArray::of({32, 3}).values);
  }
}

TEST(ShardFunctions, SegmentsAreCutEachByItself) {
  // gate and up: not the first half of the rows for rank 0.
  EXPECT_EQ(unit_numbers(cut_view("shard_segments", {0, Ints{4, 4}}, tensor({8, 1}), 2, 0)),
            (Ints{0, 1, 4, 5}));
  EXPECT_EQ(unit_numbers(cut_view("shard", {0}, tensor({8, 1}), 2, 0)), (Ints{0, 1, 2, 3}));
}

TEST(ShardFunctions, SegmentsAreCutTogetherAtTheSameRuns) {
  // 3 runs of 2, 2 and 1 rows: two for rank 0.
  const Ints segments = {6, 6, 3};
  EXPECT_EQ(unit_numbers(cut_view("shard_segment_runs", {0, segments, 3}, tensor({15, 1}), 2, 0)),
            (Ints{0, 1, 2, 3, 6, 7, 8, 9, 12, 13}));
  EXPECT_EQ(unit_numbers(cut_view("shard_segment_runs", {0, segments, 3}, tensor({15, 1}), 2, 1)),
            (Ints{4, 5, 10, 11, 14}));
  // Fine runs where the others don't suffice.
  EXPECT_EQ(
      unit_numbers(cut_view("shard_segment_runs", {0, Ints{4, 4}, 1, 4}, tensor({8, 1}), 2, 1)),
      (Ints{2, 3, 6, 7}));
  EXPECT_EQ(error_text([&] {
              cut_view("shard_segment_runs", {0, segments, 2}, tensor({15, 1}), 2, 0);
            }),
            "ShapeError: a segment of 3 elements in 2 runs, expected a multiple");
  EXPECT_EQ(error_text([&] {
              cut_view("shard_segment_runs", {0, segments, 3}, tensor({16, 1}), 2, 0);
            }),
            "ShapeError: dim 0: segments [6, 6, 3] sum to 15, expected 16");
}

TEST(ShardFunctions, UnevenSharesInWholeUnits) {
  // 231 groups of 128: 116 and 115.
  EXPECT_EQ(cut_view("shard", {1, 128}, tensor({2, 29568}), 2, 0).shape(), (Ints{2, 116 * 128}));
  EXPECT_EQ(cut_view("shard", {1, 128}, tensor({2, 29568}), 2, 1).shape(), (Ints{2, 115 * 128}));
  EXPECT_EQ(error_text([] {
              cut_view("shard", {0, 5}, tensor({24, 5}), 2, 0);
            }),
            "ShapeError: io.View.shard: 'w' [24, 5]: dim 0: size 24, expected a positive multiple "
            "of its unit 5");
}

TEST(ShardFunctions, AnExpertIsWholeOnOneRank) {
  // 5 experts on 3 ranks: 2, 2 and 1.
  const std::vector<int64_t> owners = {0, 0, 1, 1, 2};
  for (int64_t expert = 0; expert < 5; ++expert) {
    for (int64_t rank = 0; rank < 3; ++rank) {
      const View mine = cut_view("shard_expert", {1, expert, 5}, tensor({4, 6}), 3, rank);
      const bool is_own = owners[static_cast<size_t>(expert)] == rank;
      EXPECT_EQ(mine.shape(), (Ints{4, is_own ? 6 : 0}));
      EXPECT_EQ(mine.num_bytes(), is_own ? 24U : 0U);
      EXPECT_EQ(unit_numbers(mine), is_own ? NaiveArray::of({4, 6}).values : Ints{});
    }
  }
  EXPECT_EQ(error_text([] {
              cut_view("shard_expert", {0, 5, 5}, tensor({4, 6}), 1, 0);
            }),
            "ConfigError: expert 5 of 5, expected 0 to 4");
  EXPECT_EQ(error_text([] {
              cut_view("shard_expert", {0, 1, 2}, tensor({4, 6}), 3, 0);
            }),
            "ConfigError: experts: 2 units of 1 cannot be cut over 3 ranks; use 1 to 2 ranks");
}

TEST(ShardFunctions, HeadsFollowTheirKvHeads) {
  // 6 heads, 2 kv heads of 2 rows.
  const std::string q = "q";
  EXPECT_EQ(unit_numbers(cut_view("shard_heads", {0, 6, 2, q}, tensor({12}), 2, 1)),
            (Ints{6, 7, 8, 9, 10, 11}));
  EXPECT_EQ(unit_numbers(cut_view("shard_heads", {0, 6, 2, std::string("kv")}, tensor({4}), 2, 1)),
            (Ints{2, 3}));
  EXPECT_EQ(
      unit_numbers(cut_view("shard_heads", {0, 6, 2, std::string("qkv")}, tensor({20}), 2, 1)),
      (Ints{6, 7, 8, 9, 10, 11, 14, 15, 18, 19}));
}

TEST(ShardFunctions, HeadsAreDealtOutEvenlyWithTheirKvHeads) {
  // 9 heads, 3 kv heads of 1 row: 5 and 4 over 2 and 2.
  const auto rows = [](const std::string& what, int64_t size, int64_t rank) {
    return unit_numbers(cut_view("shard_heads_evenly", {0, 9, 3, what}, tensor({size}), 2, rank));
  };
  EXPECT_EQ(rows("q", 9, 0), (Ints{0, 1, 2, 3, 4}));
  EXPECT_EQ(rows("q", 9, 1), (Ints{5, 6, 7, 8}));
  EXPECT_EQ(rows("kv", 3, 0), (Ints{0, 1}));
  EXPECT_EQ(rows("kv", 3, 1), (Ints{1, 2}));
  EXPECT_EQ(rows("qkv", 15, 1), (Ints{5, 6, 7, 8, 10, 11, 13, 14}));
}

TEST(ShardFunctions, KvHeadsAreReplicatedBeyondTheirNumber) {
  const std::string kv = "kv";
  for (int64_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(unit_numbers(cut_view("shard_heads", {0, 8, 2, kv}, tensor({4}), 4, rank)),
              (Ints{rank / 2 * 2, rank / 2 * 2 + 1}));
  }
  EXPECT_EQ(error_text([&] {
              cut_view("shard_heads", {0, 8, 2, kv}, tensor({4}), 9, 0);
            }),
            "ConfigError: shard.shard_heads: 8 heads cannot be cut over 9 ranks; use 1 to 8 ranks");
  EXPECT_EQ(error_text([&] {
              cut_view("shard_heads", {0, 8, 2, kv}, tensor({5}), 2, 0);
            }),
            "ShapeError: dim 0 of [5] is no multiple of 2 heads; check the head counts");
  EXPECT_EQ(error_text([] {
              cut_view("shard_heads", {0, 8, 2, std::string("k")}, tensor({4}), 2, 0);
            }),
            "ConfigError: heads of 'k', expected 'q', 'kv' or 'qkv'");
  EXPECT_EQ(error_text([] {
              cut_view("shard_heads", {0, INT64_MAX, 1, std::string("q")}, tensor({4}), 2, 0);
            }),
            "ConfigError: 9223372036854775807 heads and 1 kv heads, expected 1 to 1048576");
}

TEST(ShardFunctions, WholeIsForAll) {
  EXPECT_EQ(unit_numbers(cut_view("shard_whole", {}, tensor({3}), 2, 1)), (Ints{0, 1, 2}));
}

TEST(ShardFunctions, PiecesGoToTheirRanks) {
  const std::vector<View> pieces = {tensor({2}), tensor({1}, 2)};
  const FunctionTable table;
  const ViewFunction& function = *table.find("shard_pieces", "test").view;
  EXPECT_EQ(unit_numbers(function.apply({pieces, {}, 2, 1})), (Ints{2}));
  EXPECT_EQ(error_text([&] {
              function.apply({pieces, {}, 3, 1});
            }),
            "ConfigError: 2 pieces for 3 ranks; use as many ranks as pieces, or cut anew: cat, "
            "then shard");
}

TEST(ShardFunctions, StackedShardsAreTvmsForm) {
  const View view = cut_view("weft.stack_shards", {1, 2}, tensor({2, 4}), 1, 0);
  EXPECT_EQ(view.shape(), (Ints{2, 2, 2}));
  EXPECT_EQ(unit_numbers(view), (Ints{0, 1, 4, 5, 2, 3, 6, 7}));
  EXPECT_EQ(unit_numbers(cut_view("weft.stack_shards", {0, 2, 2, 4}, tensor({6}), 1, 0)),
            (Ints{0, 2, 3, 1, 4, 5}));
  EXPECT_EQ(error_text([] {
              cut_view("weft.stack_shards", {1, 3}, tensor({2, 4}), 1, 0);
            }),
            "ShapeError: a segment of 4 in 3 equal shards; weft's form cuts unevenly");
  EXPECT_EQ(error_text([] {
              cut_view("weft.stack_shards", {2, 3}, tensor({2, 4}), 1, 0);
            }),
            "ShapeError: dim 2 of [2, 4], expected 0 to 1");
}

TEST(FunctionTable, RefusesNamesThatAreTakenOrUnknown) {
  FunctionTable table;
  ViewFunction mine;
  mine.name = "mine";
  table.add(mine);
  EXPECT_EQ(error_text([&] { table.add(mine); }),
            "ConfigError: io.FunctionTable.add: there is a function 'mine' already; choose another "
            "name");
  EXPECT_EQ(error_text([&] { table.add_alias("shard", "mine", {}); }),
            "ConfigError: io.FunctionTable.add_alias: there is a function 'shard' already; choose "
            "another name");
  const std::string text = error_text([&] { table.find("shards", "here"); });
  EXPECT_TRUE(text.starts_with(
      "ConfigError: here: unknown function 'shards'; bind it in a file of functions, or "
      "use as_bits, cat, combine_latent_heads, combine_qkv, "))
      << text;
}

// Dim 1 as words of `per` elements each: the cut is that of the elements.
TEST(ShardFunctions, IndicesMayStandForSeveralElements) {
  // 96 columns by units of 8 over 3 ranks: 32 each, which are 4 words of 8 or 2 scales of 16.
  EXPECT_EQ(unit_numbers(cut_view("shard", {1, 8, 0, 8, 8}, tensor({1, 12}), 3, 1)),
            (Ints{4, 5, 6, 7}));
  EXPECT_EQ(unit_numbers(cut_view("shard", {1, 8, 0, 16, 16}, tensor({1, 6}), 3, 2)), (Ints{4, 5}));
  // 2 heads of 24 elements: scales of 16 that an edge cuts are on both ranks.
  EXPECT_EQ(unit_numbers(
                cut_view("shard_heads", {1, 2, 2, std::string("q"), 16, 16}, tensor({1, 3}), 2, 0)),
            (Ints{0, 1}));
  EXPECT_EQ(unit_numbers(
                cut_view("shard_heads", {1, 2, 2, std::string("q"), 16, 16}, tensor({1, 3}), 2, 1)),
            (Ints{1, 2}));
}

TEST(ShardFunctions, FineUnitsAreTakenWhereTheOthersDontSuffice) {
  EXPECT_EQ(cut_view("shard", {0, 64, 8}, tensor({128, 1}), 2, 0).size(0), 64);
  EXPECT_EQ(cut_view("shard", {0, 64, 8}, tensor({128, 1}), 3, 0).size(0), 48);
  EXPECT_EQ(cut_view("shard", {0, 64, 8}, tensor({128, 1}), 3, 2).size(0), 40);
  EXPECT_EQ(error_text([] {
              cut_view("shard", {0, 64}, tensor({128, 1}), 3, 0);
            }),
            "ConfigError: io.View.shard: 'w' [128, 1]: dim 0: 2 units of 64 cannot be cut over 3 "
            "ranks; use 1 to 2 ranks");
}

TEST(ShardFunctions, RefuseScalesThatDontFit) {
  const auto error = [](const Arguments& arguments) {
    return error_text([&] { cut_view("shard", arguments, tensor({4, 6}), 2, 0); });
  };
  EXPECT_EQ(error({1, 1, 0, 0, 1}),
            "ConfigError: each index for 0 elements, cut at multiples of 1, expected 1 to "
            "2147483648");
  EXPECT_EQ(error({1, 1, 0, 8, 12}),
            "ConfigError: cut at multiples of 12 elements, expected a multiple of the 8 that each "
            "index is for");
  EXPECT_EQ(error({2, 1, 0, 8, 8}), "ShapeError: dim 2 of [4, 6], expected 0 to 1");
}

TEST(ReorderFunctions, WordsAreSeenAsPackedValues) {
  const View words = View::of(tensor_meta("w", Dtype::kU32, {2, 6}, 0));
  const View values = cut_view("as_bits", {3}, words, 1, 0);
  EXPECT_EQ(values.shape(), (Ints{2, 64}));
  EXPECT_EQ(values.num_bytes(), 48u);
  EXPECT_EQ(cut_view("shard", {1, 8}, values, 2, 1).num_bytes(), 24u);
  EXPECT_EQ(error_text([&] { cut_view("as_bits", {3}, words.narrow(0, 0, 1), 1, 0); }),
            "ShapeError: io.View.as_bits: 'w' [1, 6]: not the whole tensor; make this the first "
            "step");
  const View square = View::of(tensor_meta("w", Dtype::kU32, {4, 4}, 0));
  EXPECT_EQ(error_text([&] {
              cut_view("as_bits", {4}, square.permute(Ints{1, 0}), 1, 0);
            }),
            "ShapeError: io.View.as_bits: 'w' [4, 4]: not the whole tensor; make this the first "
            "step");
}

TEST(FunctionTable, ChecksArgumentsAgainstTheSignature) {
  const FunctionTable table;
  const auto error = [&](const std::string& name, const Arguments& arguments) {
    return error_text([&] { check_arguments(*table.find(name, "t").view, arguments, "here"); });
  };
  EXPECT_EQ(error("shard", {1}), "no error");
  EXPECT_EQ(error("shard", {1, 2}), "no error");
  const std::string rest = "; x[] is a list, x: a text, x? may be left out, x* any number";
  EXPECT_EQ(error("shard", {}),
            "ConfigError: here: arguments (none), expected shard dim unit? fine_unit? per? cover?" +
                rest);
  EXPECT_EQ(
      error("shard", {1, 2, 3, 4, 5, 6}),
      "ConfigError: here: arguments 1 2 3 4 5 6, expected shard dim unit? fine_unit? per? cover?" +
          rest);
  EXPECT_EQ(
      error("shard_segments", {0, std::string("x")}),
      "ConfigError: here: arguments 0 'x', expected shard_segments dim lengths[] unit?" + rest);
  EXPECT_EQ(error("shard_heads", {0, 1, 1, Ints{1, 2}}),
            "ConfigError: here: arguments 0 1 1 [1, 2], expected shard_heads dim heads kv_heads "
            "what: per? cover?" +
                rest);
  EXPECT_EQ(error("weft.stack_shards", {0, 2, 1, 1, 1, 1, 1}), "no error");
  EXPECT_EQ(error("combine_qkv", {1}),
            "ConfigError: here: arguments 1, expected combine_qkv " + rest);
}

TEST(FunctionTable, EveryRowSaysWhatItDoes) {
  const FunctionTable table;
  for (const auto& [name, function] : table.view_functions()) {
    EXPECT_EQ(name, function.name);
    EXPECT_FALSE(function.summary.empty()) << name;
    EXPECT_TRUE(function.apply != nullptr) << name;
  }
}

}  // namespace
}  // namespace weft::io
