#include "weft/io/views/view.h"

#include <gtest/gtest.h>

#include "tests/core/error_text.h"
#include "tests/io/views/naive_array.h"

namespace weft::io {
namespace {

using testing::error_text;
using testing::expect_same;
using testing::NaiveArray;
using testing::tensor_meta;

using Ints = std::vector<int64_t>;

View whole(const Ints& shape, uint64_t offset = 0) {
  return View::of(tensor_meta("w", Dtype::kU8, shape, offset));
}

std::string runs_text(const View& view) {
  std::string text;
  view.for_each_run(
      [&](const ByteRun& run) { text += core::join(run.offset, "+", run.num_bytes, " "); });
  return text;
}

TEST(View, OfAWholeTensorIsOneRun) {
  const View view = View::of(tensor_meta("w", Dtype::kF32, {2, 3}, 100));
  EXPECT_EQ(view.type(), (TensorType{{2, 3}, Dtype::kF32}));
  EXPECT_EQ(runs_text(view), "100+24 ");
  EXPECT_EQ(view.num_bytes(), 24u);
  EXPECT_EQ(view.max_runs(), 1u);
  EXPECT_EQ(view.num_pieces(), 1u);
  EXPECT_EQ(to_text(view.type()), "F32 [2, 3]");
}

TEST(View, OfAScalarHasOneElement) {
  const View view = whole({}, 7);
  EXPECT_EQ(runs_text(view), "7+1 ");
  EXPECT_EQ(view.reshape(Ints{1, 1}).shape(), (Ints{1, 1}));
  EXPECT_EQ(runs_text(view.reshape(Ints{1, 1})), "7+1 ");
  EXPECT_EQ(whole({1, 1}).reshape(Ints{}).shape(), Ints{});
}

TEST(View, RowsAreOneRunAndColumnsOnePerRow) {
  const View view = View::of(tensor_meta("w", Dtype::kF16, {4, 6}, 10));
  EXPECT_EQ(runs_text(view.narrow(0, 1, 2)), "22+24 ");
  EXPECT_EQ(runs_text(view.narrow(1, 3, 3)), "16+6 28+6 40+6 52+6 ");
  EXPECT_EQ(view.narrow(1, 3, 3).max_runs(), 4u);
  EXPECT_EQ(view.narrow(1, 3, 3).first_byte().offset, 16u);
}

TEST(View, PermuteThenFlattenStaysOnePiece) {
  const View view =
      whole({24, 4}).unflatten(0, Ints{2, 3, 4}).permute(Ints{1, 0, 2, 3}).flatten(0, 2);
  EXPECT_EQ(view.num_pieces(), 1u);
  expect_same(view, NaiveArray::of({2, 3, 4, 4}).permute({1, 0, 2, 3}).reshape({24, 4}));
  // At an edge that is no digit's.
  expect_same(view.narrow(0, 5, 14),
              NaiveArray::of({2, 3, 4, 4}).permute({1, 0, 2, 3}).reshape({24, 4}).narrow(0, 5, 14));
}

TEST(View, CatSideBySideThenFlattenGoesRowByRow) {
  const View left = whole({2, 3});
  const View right = whole({2, 2}, 6);
  const View joined = View::cat(std::vector{left, right}, 1);
  EXPECT_EQ(runs_text(joined), "0+3 6+2 3+3 8+2 ");
  EXPECT_EQ(runs_text(joined.flatten(0, 1)), "0+3 6+2 3+3 8+2 ");
  EXPECT_EQ(joined.flatten(0, 1).num_pieces(), 4u);
}

TEST(View, UnflattenOfDigitsThatDoNotDivideStillWorks) {
  const View view = whole({7, 6}).permute(Ints{1, 0}).flatten(0, 1).unflatten(0, Ints{14, 3});
  expect_same(view, NaiveArray::of({7, 6}).permute({1, 0}).reshape({14, 3}));
}

TEST(View, PiecesThatMeetAgainAreOne) {
  const View view = whole({6, 4});
  const View again =
      View::cat(std::vector{view.narrow(0, 0, 1), view.narrow(0, 1, 3), view.narrow(0, 4, 2)}, 0);
  EXPECT_EQ(again.num_pieces(), 1u);
  EXPECT_EQ(runs_text(again), "0+24 ");
}

TEST(View, RepeatReadsTheSameBytesAgain) {
  EXPECT_EQ(runs_text(whole({2, 3}).repeat(0, 2)), "0+3 0+6 3+3 ");
  EXPECT_EQ(whole({2, 3}).repeat(0, 2).shape(), (Ints{4, 3}));
}

TEST(View, SegmentsAndShardsFollowTheSplit) {
  const View view = whole({10, 2});
  EXPECT_EQ(runs_text(view.segment(0, Ints{4, 3, 3}, 1)), "8+6 ");
  EXPECT_EQ(runs_text(view.shard({0, {6, 4}, 2}, 2, 0)), "0+8 12+4 ");
  EXPECT_EQ(runs_text(view.shard({0, {6, 4}, 2}, 2, 1)), "8+4 16+4 ");
}

TEST(View, StackAddsADim) {
  const View view = View::stack(std::vector{whole({2, 2}), whole({2, 2}, 4)}, 1);
  EXPECT_EQ(view.shape(), (Ints{2, 2, 2}));
  EXPECT_EQ(runs_text(view), "0+2 4+2 2+2 6+2 ");
  EXPECT_EQ(View::stack(std::vector{whole({0, 2}), whole({0, 2})}, 0).shape(), (Ints{2, 0, 2}));
}

TEST(View, WithoutElementsHasNoRuns) {
  const View view = whole({3, 0, 4});
  EXPECT_EQ(runs_text(view), "");
  EXPECT_EQ(view.num_bytes(), 0u);
  EXPECT_EQ(view.narrow(0, 1, 2).flatten(0, 1).shape(), (Ints{0, 4}));
  EXPECT_EQ(view.permute(Ints{1, 2, 0}).select(2, 1).shape(), (Ints{0, 4}));
  EXPECT_EQ(View::cat(std::vector{view, view}, 0).shape(), (Ints{6, 0, 4}));
  EXPECT_EQ(whole({3, 2}).narrow(0, 3, 0).repeat(1, 5).shape(), (Ints{0, 10}));
  EXPECT_EQ(view.reshape(Ints{7, 0}).shape(), (Ints{7, 0}));
  EXPECT_EQ(View::cat(std::vector{whole({0, 2}), whole({1, 2}, 9)}, 0).shape(), (Ints{1, 2}));
}

TEST(View, OffsetsBeyondFourGigabytesAreExact) {
  const View view = View::of(tensor_meta("big", Dtype::kF16, {100000, 50000}, 8));
  EXPECT_EQ(runs_text(view.narrow(0, 99999, 1).narrow(1, 49999, 1)), "10000000006+2 ");
  EXPECT_EQ(view.num_bytes(), 10000000000u);
}

TEST(PackedView, CutsBlocksOnlyAtTheirEdges) {
  const View view = View::of(tensor_meta("w", Dtype::kQ4_0, {2, 96}, 0));
  EXPECT_EQ(runs_text(view.narrow(1, 32, 64)), "18+36 72+36 ");
  EXPECT_EQ(view.narrow(1, 32, 64).num_bytes(), 72u);
  const std::string lead = "ShapeError: io.View: 'w' (Q4_0): ";
  const std::string rest = "; cut and reorder by multiples of 32";
  const auto error = [](const View& cut) { return error_text([&] { cut.for_each_run({}); }); };
  EXPECT_EQ(
      error(view.narrow(1, 0, 48)),
      lead + "a last dim of 48 cuts a unit of 32 elements in 18 bytes, expected 32 or 64" + rest);
  EXPECT_EQ(error(view.narrow(1, 16, 32)),
            lead +
                "a run from element 16 cuts a unit of 32 elements in 18 bytes, expected 0 or 32" +
                rest);
  EXPECT_EQ(
      error(view.permute(Ints{1, 0}).unflatten(0, Ints{3, 32}).flatten(1, 2)),
      lead + "a run of length 1 cuts a unit of 32 elements in 18 bytes, expected 0 or 32" + rest);
  EXPECT_EQ(
      error(view.unflatten(1, Ints{6, 16})),
      lead + "a last dim of 16 cuts a unit of 32 elements in 18 bytes, expected 0 or 32" + rest);
}

TEST(PackedView, RowsOfBlocksMoveWhole) {
  const View view = View::of(tensor_meta("w", Dtype::kQ6K, {4, 512}, 0));
  EXPECT_EQ(runs_text(view.unflatten(0, Ints{2, 2}).permute(Ints{1, 0, 2}).flatten(0, 1)),
            "0+420 840+420 420+420 1260+420 ");
  const View halves = View::cat(std::vector{view.narrow(1, 0, 128), view.narrow(1, 128, 384)}, 1);
  EXPECT_EQ(runs_text(halves), "0+1680 ");
}

TEST(PackedView, OfWordsCountsValues) {
  const View four = View::of_bits(tensor_meta("w", Dtype::kU32, {2, 8}), 4);
  EXPECT_EQ(four.shape(), (Ints{2, 64}));
  EXPECT_EQ(runs_text(four.narrow(1, 8, 16)), "4+8 36+8 ");
  const View three = View::of_bits(tensor_meta("w", Dtype::kU32, {2, 6}), 3);
  EXPECT_EQ(three.shape(), (Ints{2, 64}));
  EXPECT_EQ(runs_text(three.narrow(1, 8, 8)), "3+3 27+3 ");
  EXPECT_EQ(error_text([&] { four.narrow(1, 4, 8).num_bytes(); }),
            "ShapeError: io.View: 'w' (U32): a run from element 4 cuts a unit of 8 elements in 4 "
            "bytes, expected 0 or 8; cut and reorder by multiples of 8");
  EXPECT_EQ(error_text([] {
              View::of_bits(tensor_meta("w", Dtype::kU32, {2, 4}), 3);
            }),
            "ShapeError: io.View.of_bits: 'w': 4 words along the last dim are no whole number of "
            "units of 8 values of 3 bits; check the bits");
  EXPECT_EQ(error_text([] {
              View::of_bits(tensor_meta("w", Dtype::kU32, {2, 4}), 7);
            }),
            "ConfigError: io.packing_of_bits: 7 bits, expected 2, 3, 4, 5, 6 or 8");
  EXPECT_EQ(error_text([] { View::of_bits(tensor_meta("w", Dtype::kQ8_0, {32}), 4); }),
            "ShapeError: io.View.of_bits: 'w' is Q8_0 [32], expected words in at least one dim");
}

TEST(PackedView, UnitsOfAllBitWidths) {
  std::string text;
  for (const int64_t bits : {2, 3, 4, 5, 6, 8}) {
    const Packing packing = packing_of_bits(bits);
    EXPECT_EQ(packing.unit_elements * bits, packing.unit_bits);
    text += core::join(packing.unit_elements, "/", packing.unit_bytes(), " ");
  }
  EXPECT_EQ(text, "16/4 8/3 8/4 8/5 4/3 4/4 ");
  EXPECT_EQ(packing_of(Dtype::kQ4K), (Packing{256, 144 * 8}));
}

using ErrorCases = std::vector<std::pair<std::function<void()>, const char*>>;

void expect_view_errors(const ErrorCases& cases) {
  for (const auto& [action, text] : cases) {
    EXPECT_EQ(error_text(action), std::string("ShapeError: io.View.") + text);
  }
}

TEST(ViewErrors, NameOperationShapeAndNumbers) {
  const View view = whole({4, 6});
  const auto max = INT64_MAX;
  expect_view_errors({
      {[&] { view.narrow(2, 0, 1); }, "narrow: 'w' [4, 6]: dim 2, expected 0 to 1"},
      {[&] { view.narrow(-1, 0, 1); }, "narrow: 'w' [4, 6]: dim -1, expected 0 to 1"},
      {[&] { view.narrow(0, 3, 2); },
       "narrow: 'w' [4, 6]: 2 from 3 of dim 0, expected them within 4"},
      {[&] { view.narrow(0, max, max); },
       "narrow: 'w' [4, 6]: 9223372036854775807 from 9223372036854775807 of dim 0, expected them "
       "within 4"},
      {[&] { view.select(1, 6); }, "select: 'w' [4, 6]: index 6 of dim 1, expected 0 to 5"},
      {[&] {
         view.permute(Ints{0, 0});
       },
       "permute: 'w' [4, 6]: order [0, 0], expected each of the 2 dims once"},
      {[&] { view.flatten(1, 0); },
       "flatten: 'w' [4, 6]: dims 1 to 0, expected the first before the last"},
      {[&] {
         view.unflatten(1, Ints{4, 2});
       },
       "unflatten: 'w' [4, 6]: dim 1 of 6 into [4, 2], which is 8; the product must be the dim's "
       "size"},
      {[&] {
         view.unflatten(1, Ints{-2, -3});
       },
       "unflatten: 'w' [4, 6]: size -2 in [-2, -3], expected at least 0"},
      {[&] {
         view.unflatten(1, Ints{max, max});
       },
       "unflatten: 'w' [4, 6]: [9223372036854775807, 9223372036854775807] is more than 2^63 "
       "elements"},
      {[&] { view.unflatten(1, Ints{}); }, "unflatten: 'w' [4, 6]: no sizes, expected at least 1"},
      {[&] {
         view.reshape(Ints{5, 5});
       },
       "reshape: 'w' [24]: dim 0 of 24 into [5, 5], which is 25; the product must be the dim's "
       "size"},
      {[&] { view.reshape(Ints{}); }, "reshape: 'w' [4, 6]: to [], expected 1 element"},
      {[&] { view.unflatten(0, Ints(17, 1)); },
       "unflatten: 'w' [4, 6]: dim 0 of 4 into [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, "
       "1], which is 1; the product must be the dim's size"},
  });
}

TEST(ViewErrors, OfRepeatSegmentAndCat) {
  const View view = whole({4, 6});
  const auto max = INT64_MAX;
  expect_view_errors({
      {[&] { view.repeat(0, 0); },
       "repeat: 'w' [4, 6]: 0 times along dim 0, expected at least 1 and a size below 2^63"},
      {[&] { view.repeat(0, max).repeat(1, 2); },
       "repeat: 'w' [4, 6]: 9223372036854775807 times along dim 0, expected at least 1 and a size "
       "below 2^63"},
      {[&] {
         view.segment(0, Ints{1, 2}, 0);
       },
       "segment: 'w' [4, 6]: dim: segments [1, 2] sum to 3, expected 4"},
      {[&] {
         view.segment(0, Ints{4, 0}, 0);
       },
       "segment: 'w' [4, 6]: dim: segment of 0 in [4, 0], expected at least 1"},
      {[&] {
         view.segment(0, Ints{1, 3}, 2);
       },
       "segment: 'w' [4, 6]: segment 2 of [1, 3], expected 0 to 1"},
      {[&] {
         View::cat(std::vector{view, whole({4, 5})}, 0);
       },
       "cat: 'w' [4, 6]: with 'w' [4, 5] as input 1 along dim 0; all other sizes must agree"},
      {[&] { View::cat(std::vector<View>{}, 0); }, "cat: no views, expected at least 1"},
      {[&] {
         View::cat(std::vector{view, View::of(tensor_meta("v", Dtype::kF16, {4, 6}))}, 0);
       },
       "cat: 'w' [4, 6]: U8 with 'v' of F16 as input 1; convert one of them first"},
  });
}

TEST(ViewErrors, ShardsThatWouldBeEmptyNameTheRanksThatWork) {
  EXPECT_EQ(error_text([] {
              whole({4, 6}).shard({1, {}, 2}, 4, 0);
            }),
            "ConfigError: io.View.shard: 'w' [4, 6]: dim 1: 3 units of 2 cannot be cut over 4 "
            "ranks; use 1 to 3 ranks");
}

TEST(ViewErrors, TooManyPiecesAndRunsAreRefused) {
  const View tall = View::cat(std::vector{whole({100000, 1}), whole({100000, 1}, 100000)}, 1);
  EXPECT_EQ(
      error_text([&] { tall.flatten(0, 1); }),
      "ShapeError: io.View: a view of 'w' needs more than 65536 pieces; reorder the file once "
      "instead, or cut along other dims");
  EXPECT_EQ(error_text([&] { tall.runs(1000); }),
            "ShapeError: io.View: 'w' [100000, 2] is 200000 runs of bytes, expected at most 1000; "
            "cut along a slower dim");
  EXPECT_EQ(tall.runs().size(), 200000u);
}

TEST(ViewErrors, SizesThatOverflowAreRefused) {
  TensorMeta meta;
  meta.name = "w";
  meta.shape = {int64_t{1} << 32, int64_t{1} << 31};
  EXPECT_EQ(error_text([&] { View::of(meta); }),
            "ShapeError: io.View.of: 'w': [4294967296, 2147483648] is more than 2^63 elements");
  meta.shape = {int64_t{1} << 31, int64_t{1} << 31};
  EXPECT_EQ(error_text([&] { View::of(meta).num_bytes(); }),
            "ShapeError: io.View: 'w' [2147483648, 2147483648] is more than 2^63 bytes");
}

}  // namespace
}  // namespace weft::io
