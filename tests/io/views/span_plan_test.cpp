#include "weft/io/views/span_plan.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/core/error_text.h"
#include "tests/io/views/naive_array.h"
#include "weft/core/error.h"

namespace weft::io {
namespace {

using testing::tensor;
using testing::tensor_meta;
using testing::unit_numbers;

using Ints = std::vector<int64_t>;

std::string spans_text(const std::vector<View>& views, const SpanOptions& options) {
  std::string text;
  for_each_span(views, options, [&](const ReadSpan& span) {
    text += core::join(span.offset, "+", span.num_bytes, ":", span.pieces.size(), " ");
  });
  return text;
}

TEST(Spans, JoinRunsOfSeveralViewsUpToTheGap) {
  const std::vector<View> views = {tensor({4, 10}, 100).narrow(1, 0, 2), tensor({5}, 20),
                                   tensor({5}, 30)};
  SpanOptions options;
  options.max_gap = 8;
  EXPECT_EQ(spans_text(views, options), "20+15:2 100+32:4 ");
  options.max_gap = 7;
  EXPECT_EQ(spans_text(views, options), "20+15:2 100+2:1 110+2:1 120+2:1 130+2:1 ");
  options.max_gap = 8;
  options.max_span = 12;
  EXPECT_EQ(spans_text(views, options), "20+5:1 30+5:1 100+12:2 120+12:2 ");
  options = {};
  EXPECT_EQ(spans_text(views, options), "20+112:6 ");
}

TEST(Spans, LongRunsStandAlone) {
  SpanOptions options;
  options.long_run = 10;
  EXPECT_EQ(spans_text({tensor({3}, 0), tensor({10}, 3), tensor({2}, 13)}, options),
            "0+3:1 3+10:1 13+2:1 ");
}

TEST(Spans, OfDifferentFilesAreApart) {
  TensorMeta other = tensor_meta("v", Dtype::kU8, {4}, 0);
  other.file = 1;
  const std::vector<View> views = {View::of(other), tensor({4}, 4)};
  std::string text;
  for_each_span(views, {}, [&](const ReadSpan& span) {
    text += core::join(span.file, ":", span.offset, "+", span.num_bytes, " ");
  });
  EXPECT_EQ(text, "0:4+4 1:0+4 ");
}

TEST(Spans, HoldEveryByteOfEveryViewOnce) {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    std::vector<View> views;
    for (int i = 0; i < 4; ++i) {
      const View whole = tensor({8, 6}, random() % 100);
      views.push_back(random() % 2 == 0 ? whole.narrow(1, random() % 3, 3) : whole.repeat(0, 2));
    }
    SpanOptions options;
    options.max_gap = random() % 8;
    options.max_span = 1 + random() % 40;
    options.long_run = 1 + random() % 40;
    options.max_runs_sorted = 1 + random() % 20;
    std::vector<Ints> got;
    for (const View& view : views) got.emplace_back(view.num_elements(), -1);
    const SpanCounts counts = for_each_span(views, options, [&](const ReadSpan& span) {
      for (const SpanPiece& piece : span.pieces) {
        ASSERT_LE(piece.offset_in_span + piece.num_bytes, span.num_bytes);
        for (uint64_t i = 0; i < piece.num_bytes; ++i) {
          int64_t& place = got[piece.view][piece.destination + i];
          EXPECT_EQ(place, -1);
          place = static_cast<int64_t>(span.offset + piece.offset_in_span + i);
        }
      }
      EXPECT_TRUE(span.pieces.size() == 1 || span.num_bytes <= options.max_span);
    });
    uint64_t bytes = 0;
    for (size_t i = 0; i < views.size(); ++i) {
      EXPECT_EQ(got[i], unit_numbers(views[i]));
      bytes += views[i].num_bytes();
    }
    EXPECT_EQ(counts.planned_bytes, bytes);
  }
}

TEST(Spans, AreNotBegunIfAViewCutsAUnit) {
  const std::vector<View> views = {tensor({4}, 0),
                                   View::of(tensor_meta("q", Dtype::kQ8_0, {64})).narrow(0, 0, 16)};
  int calls = 0;
  EXPECT_TRUE(testing::error_text([&] {
                for_each_span(views, {}, [&](const ReadSpan&) { ++calls; });
              }).starts_with("ShapeError: io.View: 'q' (Q8_0): a last dim of 16 cuts a unit"));
  EXPECT_EQ(calls, 0);
}

}  // namespace
}  // namespace weft::io
