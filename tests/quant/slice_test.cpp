#include "tests/quant/quant_cases.h"
#include "weft/core/error.h"
#include "weft/quant/quantized_matrix.h"
#include "weft/shard/split.h"

namespace weft::quant {
namespace {

using core::ShapeError;
using shard::Range;
using test::Format;
using test::kMicroscaledModes;
using test::message_of;
using test::random_affine;
using test::random_microscaled;

/// The slice's values must be those of the whole, to the bit.
void expect_slice_of_whole(const AffineTensor& w, const Range& rows, const Range& columns) {
  const auto part = slice_affine(w, rows, columns);
  check_affine(part, "slice");
  const auto whole = dequantize(w, at::kFloat);
  EXPECT_TRUE(
      at::equal(dequantize(part, at::kFloat),
                whole.narrow(0, rows.start, rows.length).narrow(1, columns.start, columns.length)))
      << w.bits << " bits, group " << w.group_size << ", columns " << columns.start << " to "
      << columns.end();
}

TEST(SliceAffine, EqualsTheSliceOfTheWholeForAnyNumberOfRanks) {
  at::manual_seed(7);
  for (const int64_t bits : {2, 3, 4, 5, 6, 8}) {
    for (const int64_t group : {32, 64, 128}) {
      const auto w = random_affine({bits, group, at::kHalf, bits == 4}, 10, 768);
      for (const int64_t n : {2, 3, 4}) {
        for (int64_t rank = 0; rank < n; ++rank) {
          expect_slice_of_whole(w, shard::part(10, n, rank), {0, 768});
          expect_slice_of_whole(w, {0, 10}, {768 / n * rank, 768 / n});
          const Range units = shard::part(768 / 8, n, rank);
          expect_slice_of_whole(w, {2, 5}, {units.start * 8, units.length * 8});
        }
      }
    }
  }
}

TEST(SliceAffine, KeepsTheGroupSizeWhereNoGroupIsCut) {
  const auto w = random_affine({4, 32}, 4, 128);
  EXPECT_EQ(slice_affine(w, {0, 4}, {32, 96}).group_size, 32);
}

TEST(SliceAffine, RefinesGroupsThatAnEdgeCuts) {
  const auto w = random_affine({4, 128}, 4, 256);
  const auto part = slice_affine(w, {0, 4}, {64, 192});
  EXPECT_EQ(part.group_size, 64);
  EXPECT_EQ(part.scales.sizes(), (std::vector<int64_t>{4, 3}));
  EXPECT_TRUE(at::equal(part.scales.select(1, 1), part.scales.select(1, 2)));
  expect_slice_of_whole(w, {0, 4}, {64, 192});
  EXPECT_EQ(slice_affine(w, {0, 4}, {128 + 24, 40}).group_size, 8);
}

TEST(SliceAffine, CutsEightBitsAnywhere) {
  const auto w = random_affine({8, 32}, 4, 64);
  EXPECT_EQ(slice_affine(w, {0, 4}, {5, 31}).group_size, 1);
  expect_slice_of_whole(w, {0, 4}, {5, 31});
  expect_slice_of_whole(random_affine({4, 32}, 4, 64), {0, 4}, {2, 34});
}

TEST(SliceAffine, OwnsItsMemory) {
  const auto w = random_affine({8, 32}, 4, 64);
  const auto part = slice_affine(w, {1, 2}, {0, 64});
  EXPECT_FALSE(part.packed.is_alias_of(w.packed));
  EXPECT_FALSE(part.scales.is_alias_of(w.scales));
  EXPECT_EQ(part.packed.storage().nbytes(), 2U * 64U);
}

TEST(SliceAffine, NamesWhatItRefuses) {
  const auto w = random_affine({3, 32}, 4, 64);
  const auto message = [&](const Range& rows, const Range& columns) {
    return message_of<ShapeError>([&] { slice_affine(w, rows, columns); });
  };
  EXPECT_EQ(message({0, 4}, {0, 12}),
            "quant.slice_affine: columns, expected edges between whole bytes, got an edge at "
            "column 12 of 3-bit elements; cut at a multiple of 8 columns");
  EXPECT_EQ(message({2, 3}, {0, 64}),
            "quant.slice_affine: rows, expected a part of 0 to 4, got 3 from 2; check the split");
  EXPECT_EQ(message({0, 4}, {-8, 16}),
            "quant.slice_affine: columns, expected a part of 0 to 64, got 16 from -8; check the "
            "split");
  EXPECT_EQ(message({0, 0}, {0, 64}),
            "quant.slice_affine: rows, expected a part of 0 to 4, got 0 from 0; check the split");
}

void expect_equal(const QuantizedMatrix& one, const QuantizedMatrix& other) {
  EXPECT_EQ(scheme_text(scheme_of(one)), scheme_text(scheme_of(other)));
  EXPECT_TRUE(at::equal(dequantize(one, at::kFloat), dequantize(other, at::kFloat)));
}

TEST(SliceMicroscaled, EqualsTheSliceOfTheWholeForAnyNumberOfRanks) {
  at::manual_seed(24);
  for (const Mode mode : kMicroscaledModes) {
    const auto w = random_microscaled(mode, 10, 192);
    const auto whole = dequantize(w, at::kFloat);
    for (const int64_t n : {1, 2, 3, 4}) {
      for (int64_t rank = 0; rank < n; ++rank) {
        const Range units = shard::part(192 / 8, n, rank), rows = shard::part(10, n, rank);
        const Range columns = {units.start * 8, units.length * 8};
        const auto part = slice_microscaled(w, rows, columns);
        check_microscaled(part, "slice");
        EXPECT_TRUE(at::equal(
            dequantize(part, at::kFloat),
            whole.narrow(0, rows.start, rows.length).narrow(1, columns.start, columns.length)))
            << mode_info(mode).name << ", rank " << rank << " of " << n;
      }
    }
  }
}

TEST(SliceMicroscaled, RefinesGroupsThatAnEdgeCuts) {
  const auto w = random_microscaled(Mode::kMxfp4, 4, 64);
  const auto part = slice_microscaled(w, {0, 4}, {16, 48});
  EXPECT_EQ(part.group_size, 16);
  EXPECT_TRUE(at::equal(part.scales.select(1, 1), part.scales.select(1, 2)));
  EXPECT_EQ(message_of<ShapeError>([&] {
              slice_microscaled(w, {0, 4}, {1, 31});
            }),
            "quant.slice_microscaled: columns, expected edges between whole bytes, got an edge at "
            "column 1 of 4-bit elements; cut at a multiple of 8 columns");
}

TEST(SelectMicroscaled, PutsRangesOneAfterAnother) {
  const auto w = random_microscaled(Mode::kNvfp4, 8, 64);
  const auto whole = dequantize(w, at::kFloat);
  const std::vector<Range> ranges = {{4, 2}, {0, 2}}, columns = {{40, 8}, {0, 16}};
  EXPECT_TRUE(at::equal(dequantize(select_microscaled(w, 0, ranges), at::kFloat),
                        at::cat({whole.narrow(0, 4, 2), whole.narrow(0, 0, 2)}, 0)));
  const auto part = select_microscaled(w, 1, columns);
  EXPECT_EQ(part.group_size, 8);
  EXPECT_TRUE(at::equal(dequantize(part, at::kFloat),
                        at::cat({whole.narrow(1, 40, 8), whole.narrow(1, 0, 16)}, 1)));
}

TEST(Regroup, GivesTheWholesGroupsBack) {
  for (const Mode mode : kMicroscaledModes) {
    const QuantizedMatrix w = random_microscaled(mode, 3, 96);
    expect_equal(regroup(regroup(w, 8), mode_info(mode).group_size), w);
  }
  const QuantizedMatrix affine = random_affine({4, 32, at::kHalf}, 3, 96);
  expect_equal(regroup(regroup(affine, 8), 32), affine);
}

TEST(Regroup, NamesWhatItRefuses) {
  auto w = random_microscaled(Mode::kMxfp4, 1, 64, 16);
  w.scales.copy_(at::arange(4).add(120).unsqueeze(0));
  EXPECT_EQ(message_of<ShapeError>([&] { regroup(w, 32); }),
            "quant.regroup_microscaled: neighbouring quant groups of 16 differ, expected equal "
            "ones to make groups of 32");
  EXPECT_EQ(message_of<ShapeError>([&] { regroup(w, 24); }),
            "quant.regroup_microscaled: group size, expected a divisor or a multiple of 16 that "
            "divides 64, got 24");
}

TEST(Concatenate, UndoesSlicesOfAnyMode) {
  std::vector<QuantizedMatrix> wholes = {random_affine({3, 32}, 6, 96),
                                         random_affine({8, 16, at::kHalf, true}, 6, 96)};
  for (const Mode mode : kMicroscaledModes) wholes.emplace_back(random_microscaled(mode, 6, 96));
  for (const QuantizedMatrix& w : wholes) {
    const std::vector<QuantizedMatrix> rows = {slice(w, {0, 2}, {0, 96}),
                                               slice(w, {2, 4}, {0, 96})};
    expect_equal(concatenate(rows, 0), w);
    const std::vector<QuantizedMatrix> columns = {slice(w, {0, 6}, {0, 32}),
                                                  slice(w, {0, 6}, {32, 64})};
    expect_equal(concatenate(columns, 1), w);
  }
}

TEST(Concatenate, RefusesDifferentSchemes) {
  const std::vector<QuantizedMatrix> parts = {random_affine({4, 32}, 2, 64),
                                              random_microscaled(Mode::kMxfp4, 2, 64)};
  EXPECT_EQ(message_of<ShapeError>([&] { concatenate(parts, 0); }),
            "quant.concatenate: expected affine 4-bit g32 throughout, got mxfp4 too; quantize them "
            "alike");
  EXPECT_EQ(message_of<ShapeError>([] { concatenate({}, 0); }),
            "quant.concatenate: expected matrices, got none");
}

}  // namespace
}  // namespace weft::quant
