#include "weft/io/matrices/scaled_integers.h"

#include <algorithm>
#include <array>

#include "weft/core/error.h"

namespace weft::io {
namespace {

using core::check;
using core::FormatError;
using core::join;
using core::list_text;

// What rows with one scale are cut by, and held in quant groups of.
constexpr int64_t kRun = 32, kLeastRun = 8;

const TensorMeta* packed_of(const StoredMatrix& matrix) { return matrix.find("weight_packed"); }

// Earlier releases of compressed-tensors left the end of each word free where numbers don't fill
// it.
void refuse_loose_words(const StoredMatrix& matrix, const TensorMeta& packed, int64_t words) {
  for (const int64_t bits : {3, 5, 6}) {
    const int64_t per_word = kWordBits / bits;
    check<FormatError>(words != (matrix.in() + per_word - 1) / per_word, matrix.where(packed),
                       words, " words a row hold ", per_word, " numbers of ", bits,
                       " bits each, expected numbers that fill the words; pack them anew with a "
                       "later compressed-tensors");
  }
}

// Bits of a number.
int64_t number_bits(const StoredMatrix& matrix) {
  const TensorMeta* packed = packed_of(matrix);
  if (packed == nullptr) {
    matrix.check_shape(matrix.part("weight"), matrix.out(), matrix.in());
    return 8;
  }
  const int64_t words = packed->shape.empty() ? 0 : packed->shape.back();
  constexpr std::array<int64_t, 6> kWidths = {2, 3, 4, 5, 6, 8};
  const auto* const bits = std::ranges::find_if(
      kWidths, [&](int64_t each) { return words * kWordBits == matrix.in() * each; });
  if (bits == kWidths.end()) refuse_loose_words(matrix, *packed, words);
  check<FormatError>(packed->dtype == Dtype::kI32 && bits != kWidths.end(), matrix.where(*packed),
                     info(packed->dtype).name, " ", list_text(packed->shape), ", expected I32 [",
                     matrix.out(), ", words of numbers of 2 to 6 or 8 bits that fill them, for ",
                     matrix.in(), " columns]");
  matrix.check_shape(*packed, matrix.out(), words);
  return *bits;
}

// Inputs that share a scale.
int64_t scaled_columns(const StoredMatrix& matrix, const TensorMeta& scales) {
  const int64_t groups = scales.shape.empty() ? 0 : scales.shape.back();
  check<FormatError>(scales.shape.size() >= 2 && groups > 0 && matrix.in() % groups == 0,
                     matrix.where(scales), "scales ", list_text(scales.shape), " of a matrix of [",
                     matrix.out(), ", ", matrix.in(),
                     "], expected one for each row, or for each quant group of a row");
  matrix.check_shape(scales, matrix.out(), groups);
  matrix.check_floating(scales);
  return matrix.in() / groups;
}

// Scales or zero points: all are read with any columns where each row has one, or where columns
// belong to quant groups in any order.
void set_columns(MatrixPart& part, int64_t groups, const MatrixFormat& format) {
  if (groups == 1 || format.kind == MatrixKind::kOrderedIntegers) {
    part.shared_in = groups;
  } else {
    part.per_in = format.group_size;
  }
}

void add_order(const StoredMatrix& matrix, const TensorMeta& order, MatrixFormat& format) {
  matrix.check_order(order);
  check<FormatError>(packed_of(matrix) != nullptr, matrix.where(order),
                     "expected none beside numbers that are not packed");
  format.kind = MatrixKind::kOrderedIntegers;
  format.text += " act-order";
}

void add_zeros(const StoredMatrix& matrix, const TensorMeta& zeros, int64_t groups,
               MatrixFormat& format) {
  const int64_t per_word = kWordBits / format.bits;
  const bool fills_words = matrix.out() % per_word == 0, is_alone = matrix.ref().stack == 0;
  check<FormatError>(zeros.dtype == Dtype::kI32 && kWordBits % format.bits == 0 &&
                         (fills_words || is_alone) && packed_of(matrix) != nullptr,
                     matrix.where(zeros), info(zeros.dtype).name, " ", list_text(zeros.shape),
                     ", expected I32 beside packed numbers of 2, 4 or 8 bits, and of a stack rows "
                     "that fill its words; convert the model to bfloat16 first");
  matrix.check_shape(zeros, (matrix.out() + per_word - 1) / per_word, groups);
  if (is_alone && (matrix.ref().has_row_order || !fills_words)) {
    format.beside = {zeros.name};
    return;
  }
  format.out_unit = per_word;
  MatrixPart& part = add_part(format, ".weight_zero_point", 0, 1);
  part.per_out = per_word;
  set_columns(part, groups, format);
}

void add_packed_or_bytes(const StoredMatrix& matrix, MatrixFormat& format) {
  if (packed_of(matrix) == nullptr) {
    add_part(format, ".weight", 0, 1);
  } else {
    add_part(format, ".weight_packed", 0, 1).bits = format.bits;
  }
}

// Columns of a row with one scale that are read together.
int64_t run_of(const StoredMatrix& matrix) { return matrix.in() % kRun == 0 ? kRun : kLeastRun; }

void check_runs(const StoredMatrix& matrix, const TensorMeta& scales, int64_t run) {
  check<FormatError>(run % kLeastRun == 0 && matrix.in() % run == 0, matrix.where(scales),
                     "quant groups of ", run, " in ", matrix.in(),
                     " columns, expected a multiple of 8");
}

}  // namespace

bool has_byte_rows(const StoredMatrix& matrix) { return matrix.find("SCB") != nullptr; }

MatrixFormat describe_byte_rows(const StoredMatrix& matrix) {
  const TensorMeta& weight = matrix.part("weight");
  const TensorMeta& scales = matrix.part("SCB");
  matrix.check_shape(weight, matrix.out(), matrix.in());
  check<FormatError>(weight.dtype == Dtype::kI8 && scales.dtype == Dtype::kF32 &&
                         scales.shape == std::vector<int64_t>{matrix.out()},
                     matrix.where(scales), info(scales.dtype).name, " ", list_text(scales.shape),
                     " beside ", info(weight.dtype).name, ", expected F32 [", matrix.out(),
                     "] beside I8");
  MatrixFormat format;
  format.kind = MatrixKind::kScaledIntegers;
  format.scheme = "bitsandbytes";
  format.bits = 8;
  format.group_size = matrix.in();
  format.in_unit = run_of(matrix);
  check_runs(matrix, scales, format.in_unit);
  format.text = "bitsandbytes 8-bit";
  add_part(format, ".weight", 0, 1);
  MatrixPart& part = add_part(format, ".SCB", 0, 1);
  part.seen_as = {matrix.out(), 1};
  part.shared_in = 1;
  const TensorMeta* order = matrix.find("weight_format");
  if (order != nullptr) format.beside = {order->name};
  return format;
}

bool has_scaled_integers(const StoredMatrix& matrix) {
  const TensorMeta* weight = matrix.find("weight");
  return packed_of(matrix) != nullptr || (weight != nullptr && weight->dtype == Dtype::kI8);
}

MatrixFormat describe_scaled_integers(const StoredMatrix& matrix) {
  MatrixFormat format;
  format.kind = MatrixKind::kScaledIntegers;
  format.scheme = "int";
  format.bits = number_bits(matrix);
  const TensorMeta& scales = matrix.part("weight_scale");
  format.group_size = scaled_columns(matrix, scales);
  const int64_t groups = matrix.in() / format.group_size;
  format.in_unit = groups == 1 ? run_of(matrix) : format.group_size;
  check_runs(matrix, scales, format.in_unit);
  format.text = join("int ", format.bits, "-bit");
  if (groups > 1) format.text += join(" g", format.group_size);
  const TensorMeta* order = matrix.find("weight_g_idx");
  if (order != nullptr) add_order(matrix, *order, format);
  add_packed_or_bytes(matrix, format);
  set_columns(add_part(format, ".weight_scale", 0, 1), groups, format);
  const TensorMeta* zeros = matrix.find("weight_zero_point");
  if (zeros != nullptr) add_zeros(matrix, *zeros, groups, format);
  if (order != nullptr) add_part(format, ".weight_g_idx", -1, 0);
  return format;
}

}  // namespace weft::io
