#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "tests/core/error_text.h"
#include "weft/io/header_checks.h"
#include "weft/io/tensor_file.h"

namespace weft::io {
namespace {

using shard::Range;
using testing::error_text;

TensorMeta meta_of(Dtype dtype, const std::vector<int64_t>& shape, uint64_t offset = 0) {
  TensorMeta meta{.name = "w", .dtype = dtype, .shape = shape, .file = 3, .offset = offset};
  meta.num_bytes = tensor_bytes(dtype, shape).value();
  return meta;
}

// The runs as "offset+bytes offset+bytes".
std::string text(const std::vector<ByteRun>& runs) {
  std::string out;
  for (const ByteRun& run : runs) {
    EXPECT_EQ(run.file, 3u);
    if (!out.empty()) out += " ";
    out += core::join(run.offset, "+", run.num_bytes);
  }
  return out;
}

TEST(MatrixRuns, WholeRowsAreOneRun) {
  const TensorMeta meta = meta_of(Dtype::kF16, {6, 10}, 1000);
  EXPECT_EQ(text(matrix_runs(meta, {{0, 6}}, {0, 10})), "1000+120");
  EXPECT_EQ(text(matrix_runs(meta, {{2, 3}}, {0, 10})), "1040+60");
}

TEST(MatrixRuns, ColumnsAreOneRunEach) {
  const TensorMeta meta = meta_of(Dtype::kF16, {3, 10}, 1000);
  EXPECT_EQ(text(matrix_runs(meta, {{0, 3}}, {5, 5})), "1010+10 1030+10 1050+10");
}

TEST(MatrixRuns, RowsKeepTheirOrderAndNeighboursMerge) {
  const TensorMeta meta = meta_of(Dtype::kU8, {6, 10});
  EXPECT_EQ(text(matrix_runs(meta, {{4, 1}, {5, 1}, {0, 1}, {2, 1}, {2, 1}}, {0, 10})),
            "40+20 0+10 20+10 20+10");
  EXPECT_EQ(text(matrix_runs(meta, {{4, 1}, {0, 2}}, {1, 2})), "41+2 1+2 11+2");
}

TEST(MatrixRuns, LeadingDimensionsAreRows) {
  const TensorMeta meta = meta_of(Dtype::kU8, {2, 3, 4});
  EXPECT_EQ(text(matrix_runs(meta, {{3, 3}}, {0, 4})), "12+12");
  EXPECT_EQ(text(matrix_runs(meta_of(Dtype::kF32, {5}), {{0, 1}}, {2, 2})), "8+8");
  EXPECT_EQ(text(matrix_runs(meta_of(Dtype::kF32, {}), {{0, 1}}, {0, 1})), "0+4");
}

TEST(MatrixRuns, NothingIsNoRun) {
  const TensorMeta meta = meta_of(Dtype::kU8, {2, 3});
  EXPECT_EQ(text(matrix_runs(meta, {}, {0, 3})), "");
  EXPECT_EQ(text(matrix_runs(meta, {{0, 2}}, {1, 0})), "");
  EXPECT_EQ(text(matrix_runs(meta, {{2, 0}}, {0, 3})), "");
  EXPECT_EQ(text(matrix_runs(meta_of(Dtype::kU8, {0, 3}), {{0, 0}}, {0, 3})), "");
}

TEST(MatrixRuns, ColumnsOfBlocksAreWholeBlocks) {
  const TensorMeta meta = meta_of(Dtype::kQ4_1, {2, 128}, 100);
  EXPECT_EQ(text(matrix_runs(meta, {{0, 2}}, {32, 64})), "120+40 200+40");
  EXPECT_EQ(
      error_text([&] {
        matrix_runs(meta, {{0, 2}}, {16, 32});
      }),
      "ShapeError: io.matrix_runs: tensor 'w': cut at column 16, expected a multiple of the 32 "
      "of a Q4_1 block; cut with that unit");
  EXPECT_EQ(
      error_text([&] {
        matrix_runs(meta, {{0, 2}}, {0, 40});
      }),
      "ShapeError: io.matrix_runs: tensor 'w': cut at column 40, expected a multiple of the 32 "
      "of a Q4_1 block; cut with that unit");
  EXPECT_EQ(error_text([&] {
              matrix_runs(meta_of(Dtype::kQ6K, {1, 512}), {{0, 1}}, {0, 32});
            }),
            "ShapeError: io.matrix_runs: tensor 'w': cut at column 32, expected a multiple of the "
            "256 of a Q6_K block; cut with that unit");
}

TEST(MatrixRuns, RangesMustLieInside) {
  const TensorMeta meta = meta_of(Dtype::kU8, {4, 10});
  const auto error = [&](const Range& rows, const Range& columns) {
    return error_text([&] { matrix_runs(meta, {rows}, columns); });
  };
  EXPECT_EQ(error({0, 5}, {0, 10}),
            "ShapeError: io.matrix_runs: tensor 'w': 5 rows from 0, expected them within 4");
  EXPECT_EQ(error({-1, 2}, {0, 10}),
            "ShapeError: io.matrix_runs: tensor 'w': 2 rows from -1, expected them within 4");
  EXPECT_EQ(error({3, -1}, {0, 10}),
            "ShapeError: io.matrix_runs: tensor 'w': -1 rows from 3, expected them within 4");
  EXPECT_EQ(error({0, 1}, {5, 6}),
            "ShapeError: io.matrix_runs: tensor 'w': 6 columns from 5, expected them within 10");
  EXPECT_EQ(error({INT64_MAX, INT64_MAX}, {0, 10}),
            "ShapeError: io.matrix_runs: tensor 'w': 9223372036854775807 rows from "
            "9223372036854775807, expected them within 4");
}

// Copies block by block, as the definition says.
std::string naive(const std::string& bytes, const TensorMeta& meta, const std::vector<Range>& rows,
                  const Range& columns) {
  const DtypeInfo& type = info(meta.dtype);
  const int64_t blocks_per_row = meta.shape.back() / type.block_elements;
  std::string out;
  for (const Range& range : rows) {
    for (int64_t row = range.start; row < range.end(); ++row) {
      for (int64_t column = columns.start; column < columns.end(); column += type.block_elements) {
        const int64_t block = row * blocks_per_row + column / type.block_elements;
        out += bytes.substr(static_cast<size_t>(block * type.block_bytes),
                            static_cast<size_t>(type.block_bytes));
      }
    }
  }
  return out;
}

TEST(MatrixRuns, EqualANaiveSliceForAllTypes) {
  std::mt19937_64 random(5);
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
  };
  for (int type = 0; type <= static_cast<int>(Dtype::kQ6K); ++type) {
    for (int round = 0; round < 40; ++round) {
      const auto dtype = static_cast<Dtype>(type);
      const int64_t block = info(dtype).block_elements;
      const TensorMeta meta =
          meta_of(dtype, {1 + below(3), 1 + below(6), block * (1 + below(6))}, random() % 1000);
      std::string bytes(meta.num_bytes, '\0');
      for (char& byte : bytes) byte = static_cast<char>(random());
      const int64_t num_rows = meta.shape[0] * meta.shape[1];
      std::vector<Range> rows;
      for (int64_t i = below(6); i > 0; --i) {
        const int64_t start = below(num_rows + 1);
        rows.push_back({start, below(num_rows - start + 1)});
      }
      const int64_t num_blocks = meta.shape[2] / block;
      const int64_t first = below(num_blocks + 1);
      const Range columns{first * block, below(num_blocks - first + 1) * block};
      std::string got;
      uint64_t previous_end = UINT64_MAX;
      for (const ByteRun& run : matrix_runs(meta, rows, columns)) {
        EXPECT_NE(run.offset, previous_end) << "neighbours must be merged";
        EXPECT_GT(run.num_bytes, 0u);
        previous_end = run.offset + run.num_bytes;
        got += bytes.substr(run.offset - meta.offset, run.num_bytes);
      }
      EXPECT_EQ(got, naive(bytes, meta, rows, columns));
    }
  }
}

}  // namespace
}  // namespace weft::io
