#include "weft/train/slice_runs.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/core/error_text.h"
#include "tests/train/checkpoint/slices.h"

namespace weft::train {
namespace {

using testing::all_slices;
using testing::cut_wholes;
using testing::CutWhole;
using testing::places_in_whole;
using weft::testing::error_text;

std::vector<int64_t> places_of(const std::vector<SliceRun>& runs, int64_t length) {
  std::vector<int64_t> places(static_cast<size_t>(length), -1);
  for (const SliceRun& run : runs) {
    for (int64_t i = 0; i < run.length; ++i) {
      places[static_cast<size_t>(run.offset + i)] = run.whole + i;
    }
  }
  return places;
}

TEST(SliceRuns, AreTheSlicesElementsForEveryPartOfEveryCut) {
  for (const CutWhole& whole : cut_wholes()) {
    for (int64_t rank = 0; rank < whole.num_ranks(); ++rank) {
      Slice slice = whole.shard(rank);
      const int64_t held = slice.elements.length;
      for (int64_t start = 0; start <= held; ++start) {
        for (int64_t length = 0; length <= held - start; ++length) {
          slice.elements = {start, length};
          check_slice(slice, "test");
          ASSERT_EQ(places_of(slice_runs(slice), length), places_in_whole(slice));
        }
      }
    }
  }
}

TEST(SliceRuns, AreAsLongAsCanBe) {
  const CutWhole rows{{6, 4}, shard::make_layout({0, {}, 1}, 6, 2, "test")};
  EXPECT_EQ(slice_runs(rows.shard(1)), (std::vector<SliceRun>{{12, 0, 12}}));
  const CutWhole columns{{2, 4}, shard::make_layout({1, {}, 1}, 4, 2, "test")};
  EXPECT_EQ(slice_runs(columns.shard(1)), (std::vector<SliceRun>{{2, 0, 2}, {6, 2, 2}}));
  EXPECT_EQ(slice_runs({"w", {2, 4}, {}, 3, {1, 6}}), (std::vector<SliceRun>{{1, 0, 6}}));
}

// Whatever cuts are saved and wanted, every wanted element comes once and from the right place.
TEST(SliceRuns, AnyCutIsMadeOfAnyOtherOfTheSameWhole) {
  const auto wholes = cut_wholes();
  for (const CutWhole& saved : wholes) {
    for (const CutWhole& wanted : wholes) {
      if (saved.sizes != wanted.sizes) continue;
      for (const Slice& slice : all_slices(wanted, 4)) {
        std::vector<SliceRun> missing = slice_runs(slice);
        std::vector<int64_t> got(static_cast<size_t>(slice.elements.length), -1);
        for (const Slice& source : all_slices(saved, 5)) {
          const auto places = places_in_whole(source);
          for (const SharedRun& shared : take_runs(missing, slice_runs(source))) {
            for (int64_t i = 0; i < shared.length; ++i) {
              int64_t& place = got[static_cast<size_t>(shared.wanted + i)];
              EXPECT_EQ(place, -1) << "twice";
              place = places[static_cast<size_t>(shared.held + i)];
            }
          }
        }
        EXPECT_TRUE(missing.empty());
        ASSERT_EQ(got, places_in_whole(slice));
      }
    }
  }
}

TEST(SliceRuns, WhatNobodyHasIsLeft) {
  std::vector<SliceRun> wanted = {{0, 0, 10}, {20, 10, 5}};
  EXPECT_EQ(take_runs(wanted, {{2, 100, 3}, {8, 50, 14}}),
            (std::vector<SharedRun>{{2, 100, 3}, {8, 50, 2}, {10, 62, 2}}));
  EXPECT_EQ(wanted, (std::vector<SliceRun>{{0, 0, 2}, {5, 5, 3}, {22, 12, 3}}));
  EXPECT_TRUE(take_runs(wanted, {}).empty());
  EXPECT_EQ(wanted.size(), 3U);
}

TEST(SliceRuns, ASliceThatCannotBeIsRefused) {
  const auto text = [](const Slice& slice) { return error_text([&] { check_slice(slice, "w"); }); };
  const shard::Layout halves = shard::make_layout({0, {}, 1}, 4, 2, "test");
  EXPECT_EQ(text({"w", {4, 3}, halves, 1, {0, 6}}), "no error");
  EXPECT_EQ(text({"w", {4, 3}, halves, 1, {1, 6}}),
            "ShapeError: w: 6 elements from 1 of a shard of 6");
  EXPECT_EQ(text({"w", {4, 3}, halves, 2, {0, 6}}), "ShapeError: w: model rank 2 of a cut for 2");
  EXPECT_EQ(text({"w", {5, 3}, halves, 0, {0, 6}}),
            "ShapeError: w: a cut of 4 along dim 0, expected one of the sizes [5, 3]");
  EXPECT_EQ(text({"w", {-1}, {}, 0, {0, 0}}),
            "ShapeError: w: sizes [-1]: expected sizes of at least 0 and a product of 63 bits");
  EXPECT_EQ(text({"w", {1L << 40, 1L << 40}, {}, 0, {0, 0}}),
            "ShapeError: w: sizes [1099511627776, 1099511627776]: expected sizes of at least 0 and "
            "a product of 63 bits");
}

}  // namespace
}  // namespace weft::train
