#include "weft/io/matrices/packed_columns.h"

#include <algorithm>
#include <array>

#include "weft/core/error.h"

namespace weft::io {
namespace {

using core::check;
using core::FormatError;
using core::join;
using core::list_text;

constexpr int64_t kAwqBits = 4, kAwqPerWord = kWordBits / kAwqBits;

// Columns that are read together where a row has one scale.
int64_t run_of_rows(int64_t in, int64_t least) {
  constexpr int64_t kUsual = 32;
  return in % kUsual == 0 ? kUsual : least;
}

void refuse_order(const StoredMatrix& matrix) {
  const TensorMeta* index = matrix.find("g_idx");
  if (index == nullptr) return;
  core::fail<FormatError>(matrix.where(*index), "expected none beside an AWQ matrix");
}

// What AWQ's and GPTQ's have in common that keep [in, out], for `bits` that the shapes say.
MatrixFormat describe_columns(const StoredMatrix& matrix, MatrixKind kind, int64_t bits) {
  const TensorMeta& weight = matrix.part("qweight");
  const TensorMeta& zeros = matrix.part("qzeros");
  const TensorMeta& scales = matrix.part("scales");
  const int64_t in = matrix.in(), out = matrix.out(), groups = rows_of(scales);
  const bool has_bits = bits == kAwqBits || (kind == MatrixKind::kGptq && (bits == 2 || bits == 8));
  const bool fits =
      is_word(weight.dtype) && is_word(zeros.dtype) && has_bits && groups > 0 && in % groups == 0;
  const int64_t per_word = fits ? kWordBits / bits : 1;
  check<FormatError>(
      fits && out % per_word == 0 && (in / groups) % per_word == 0, matrix.where(weight), "packed ",
      list_text(weight.shape), " with scales ", list_text(scales.shape),
      kind == MatrixKind::kAwq ? ", expected a 4-bit AWQ matrix of ["
                               : ", expected a GPTQ matrix of 2, 4 or 8 bits and of [",
      out, ", ", in, "]");
  MatrixFormat format;
  format.kind = kind;
  format.scheme = kind == MatrixKind::kAwq ? "awq" : "gptq";
  format.bits = bits;
  format.group_size = in / groups;
  format.in_unit = groups == 1 ? run_of_rows(in, per_word) : format.group_size;
  format.out_unit = per_word;
  format.text = join(format.scheme, " ", bits, "-bit g", format.group_size);
  matrix.check_floating(scales);
  matrix.check_shape(zeros, groups, out / per_word);
  matrix.check_shape(scales, groups, out);
  add_part(format, ".qweight", 1, 0);
  for (const char* suffix : {".qzeros", ".scales"}) {
    MatrixPart& part = add_part(format, suffix, 1, 0);
    part.per_in = format.group_size;
    part.shared_in = groups == 1 ? 1 : 0;
  }
  format.parts[1].per_out = per_word;
  return format;
}

// Bits of a value of which `count` fill `words`; 0 if there are none.
int64_t bits_of(int64_t words, int64_t count) { return count > 0 ? words * kWordBits / count : 0; }

// --- Version gemv. Its kernels read scales in runs, which the last quant groups need not fill.

constexpr std::array<int64_t, 3> kPaddedGroups = {128, 64, 32};

// Scales of a row of `in` columns in quant groups of `group_size`.
int64_t padded_scales(int64_t in, int64_t group_size) {
  const int64_t words_together = group_size >= 128 ? 1 : 128 / group_size;
  const int64_t run = words_together * kAwqPerWord;
  return (in / group_size + run - 1) / run * run;
}

bool has_padded_groups(int64_t in, int64_t group_size, int64_t num_scales) {
  return group_size >= kPaddedGroups.back() && in % group_size == 0 &&
         padded_scales(in, group_size) == num_scales;
}

void set_groups(int64_t in, int64_t group_size, MatrixFormat& format) {
  format.group_size = group_size;
  format.in_unit = group_size == in ? run_of_rows(in, kAwqPerWord) : group_size;
  format.text = join("awq ", kAwqBits, "-bit g", group_size, " by rows");
}

}  // namespace

bool is_awq_rows(const StoredMatrix& matrix) {
  const TensorMeta* weight = matrix.find("qweight");
  const TensorMeta* scales = matrix.find("scales");
  return weight != nullptr && scales != nullptr && rows_of(*weight) == matrix.out() &&
         rows_of(*scales) == matrix.out() && matrix.in() % kAwqPerWord == 0 &&
         columns_of(*weight) == matrix.in() / kAwqPerWord;
}

MatrixFormat describe_awq_rows(const StoredMatrix& matrix) {
  const TensorMeta& weight = matrix.part("qweight");
  const TensorMeta& zeros = matrix.part("qzeros");
  const TensorMeta& scales = matrix.part("scales");
  const int64_t in = matrix.in(), num_scales = columns_of(scales);
  const auto* group = std::ranges::find_if(
      kPaddedGroups, [&](int64_t each) { return has_padded_groups(in, each, num_scales); });
  const int64_t group_size = group == kPaddedGroups.end() ? in : *group;
  check<FormatError>(is_word(weight.dtype) && is_word(zeros.dtype) &&
                         has_padded_groups(in, group_size, num_scales),
                     matrix.where(weight), "packed ", list_text(weight.shape), " with scales ",
                     list_text(scales.shape), ", expected a 4-bit AWQ matrix of [", matrix.out(),
                     ", ", in, "] by rows, in quant groups of 32, 64, 128 or a whole row");
  refuse_order(matrix);
  matrix.check_floating(scales);
  matrix.check_shape(weight, matrix.out(), in / kAwqPerWord);
  matrix.check_shape(zeros, matrix.out(), num_scales / kAwqPerWord);
  matrix.check_shape(scales, matrix.out(), num_scales);
  MatrixFormat format;
  format.kind = MatrixKind::kAwqRows;
  format.scheme = "awq";
  format.bits = kAwqBits;
  set_groups(in, group_size, format);
  add_part(format, ".qweight", 0, 1).bits = kAwqBits;
  add_part(format, ".qzeros", 0, 1).shared_in = num_scales / kAwqPerWord;
  add_part(format, ".scales", 0, 1).shared_in = num_scales;
  return format;
}

void take_group_size(const MatrixRef& matrix, int64_t group_size, MatrixFormat& format) {
  if (format.kind != MatrixKind::kAwqRows) return;
  const int64_t stated = group_size == 0 ? matrix.in : group_size;
  if (has_padded_groups(matrix.in, stated, format.parts.back().shared_in)) {
    set_groups(matrix.in, stated, format);
  }
}

bool is_gptq(const StoredMatrix& matrix) { return matrix.find("qweight") != nullptr; }

bool is_awq(const StoredMatrix& matrix) {
  return is_gptq(matrix) && rows_of(matrix.part("qweight")) == matrix.in();
}

MatrixFormat describe_awq(const StoredMatrix& matrix) {
  const TensorMeta& weight = matrix.part("qweight");
  MatrixFormat format =
      describe_columns(matrix, MatrixKind::kAwq, bits_of(columns_of(weight), matrix.out()));
  matrix.check_shape(weight, matrix.in(), matrix.out() / format.out_unit);
  format.parts[0].per_out = format.out_unit;
  refuse_order(matrix);
  return format;
}

MatrixFormat describe_gptq(const StoredMatrix& matrix) {
  const TensorMeta& weight = matrix.part("qweight");
  MatrixFormat format =
      describe_columns(matrix, MatrixKind::kGptq, bits_of(rows_of(weight), matrix.in()));
  matrix.check_shape(weight, matrix.in() / format.out_unit, matrix.out());
  format.parts[0].per_in = format.out_unit;
  const TensorMeta* index = matrix.find("g_idx");
  if (index == nullptr) return format;
  matrix.check_order(*index);
  add_part(format, ".g_idx", -1, 0);
  return format;
}

}  // namespace weft::io
