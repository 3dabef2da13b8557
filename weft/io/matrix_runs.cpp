#include "weft/core/error.h"
#include "weft/io/tensor_file.h"

namespace weft::io {

using core::check;
using core::ShapeError;
using shard::Range;

namespace {

// A tensor seen as a matrix of stored blocks.
struct Matrix {
  int64_t rows = 1;
  int64_t columns = 1;
  uint64_t row_bytes = 0;
};

Matrix as_matrix(const TensorMeta& meta) {
  Matrix matrix;
  if (!meta.shape.empty()) matrix.columns = meta.shape.back();
  for (size_t i = 0; i + 1 < meta.shape.size(); ++i) matrix.rows *= meta.shape[i];
  const DtypeInfo& type = info(meta.dtype);
  matrix.row_bytes = static_cast<uint64_t>(matrix.columns / type.block_elements) *
                     static_cast<uint64_t>(type.block_bytes);
  return matrix;
}

void check_range(const TensorMeta& meta, const char* what, const Range& range, int64_t size) {
  const bool is_inside = range.start >= 0 && range.length >= 0 && range.start <= size &&
                         range.length <= size - range.start;
  check<ShapeError>(is_inside, "io.matrix_runs: tensor ", core::quote(meta.name), ": ",
                    range.length, " ", what, " from ", range.start, ", expected them within ",
                    size);
}

uint64_t column_bytes(const TensorMeta& meta, int64_t column) {
  const DtypeInfo& type = info(meta.dtype);
  check<ShapeError>(column % type.block_elements == 0, "io.matrix_runs: tensor ",
                    core::quote(meta.name), ": cut at column ", column,
                    ", expected a multiple of the ", type.block_elements, " of a ", type.name,
                    " block; cut with that unit");
  return static_cast<uint64_t>(column / type.block_elements) *
         static_cast<uint64_t>(type.block_bytes);
}

void append(std::vector<ByteRun>& runs, const ByteRun& run) {
  if (run.num_bytes == 0) return;
  if (!runs.empty() && runs.back().offset + runs.back().num_bytes == run.offset) {
    runs.back().num_bytes += run.num_bytes;
  } else {
    runs.push_back(run);
  }
}

}  // namespace

std::vector<ByteRun> matrix_runs(const TensorMeta& meta, const std::vector<Range>& rows,
                                 const Range& columns) {
  const Matrix matrix = as_matrix(meta);
  check_range(meta, "columns", columns, matrix.columns);
  const uint64_t first_byte = column_bytes(meta, columns.start);
  const uint64_t num_bytes = column_bytes(meta, columns.end()) - first_byte;
  std::vector<ByteRun> runs;
  for (const Range& range : rows) {
    check_range(meta, "rows", range, matrix.rows);
    const uint64_t first_row =
        meta.offset + static_cast<uint64_t>(range.start) * matrix.row_bytes + first_byte;
    const auto num_rows = static_cast<uint64_t>(range.length);
    if (num_bytes == matrix.row_bytes) {
      append(runs, {meta.file, first_row, num_rows * num_bytes});
      continue;
    }
    for (uint64_t row = 0; row < num_rows; ++row) {
      append(runs, {meta.file, first_row + row * matrix.row_bytes, num_bytes});
    }
  }
  return runs;
}

}  // namespace weft::io
