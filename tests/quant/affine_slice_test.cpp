#include "tests/quant/quant_cases.h"
#include "weft/core/error.h"
#include "weft/quant/affine.h"
#include "weft/shard/split.h"

namespace weft::quant {
namespace {

using core::ShapeError;
using shard::Range;
using test::Format;
using test::message_of;
using test::random_affine;

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

}  // namespace
}  // namespace weft::quant
