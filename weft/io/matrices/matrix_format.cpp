#include "weft/io/matrices/matrix_format.h"

#include <algorithm>
#include <array>

#include "weft/core/error.h"
#include "weft/io/matrices/codebook.h"
#include "weft/io/matrices/packed_columns.h"
#include "weft/io/matrices/scaled_integers.h"
#include "weft/io/matrices/stored_matrix.h"

namespace weft::io {
namespace {

using core::check;
using core::FormatError;
using core::join;
using core::list_text;
using core::quote;

// --- One tensor: plain numbers, or GGUF's blocks.

bool is_anything(const StoredMatrix&) { return true; }

bool has_blocks(const StoredMatrix& matrix) {
  const TensorMeta* weight = matrix.find("weight");
  return weight != nullptr && info(weight->dtype).is_block();
}

MatrixFormat describe_one_tensor(const StoredMatrix& matrix) {
  const TensorMeta& weight = matrix.part("weight");
  matrix.check_shape(weight, matrix.out(), matrix.in());
  check<FormatError>(is_floating(weight.dtype) || info(weight.dtype).is_block(),
                     matrix.where(weight), "type ", info(weight.dtype).name,
                     ", expected a floating or quantized type");
  return one_tensor_format(weight.dtype);
}

// --- Numbers of 8 bits with scales: <base>.weight, and <base>.weight_scale_inv as DeepSeek calls
// it, or <base>.weight_scale as FBGEMM and compressed-tensors do.

bool has_float_bytes(const StoredMatrix& matrix) {
  const TensorMeta* weight = matrix.find("weight");
  return weight != nullptr && (weight->dtype == Dtype::kF8E4M3 || weight->dtype == Dtype::kF8E5M2);
}

// How many scales a matrix has along `out` and `in`.
struct ScaleCounts {
  int64_t out = 1;
  int64_t in = 1;
};

ScaleCounts scale_counts(const StoredMatrix& matrix, const TensorMeta& scales) {
  std::vector<int64_t> shape = scales.shape;
  const int64_t stack = matrix.ref().stack;
  const bool is_stacked = stack > 0 && !shape.empty() && shape.front() == stack;
  if (is_stacked) shape.erase(shape.begin());
  ScaleCounts counts;
  if (!shape.empty()) counts.out = shape[0];
  if (shape.size() > 1) counts.in = shape[1];
  const bool fits = (stack == 0 || is_stacked) && shape.size() <= 2 && counts.out >= 1 &&
                    counts.in >= 1 && counts.out <= matrix.out() && counts.in <= matrix.in();
  check<FormatError>(fits, matrix.where(scales), "scales ", list_text(scales.shape),
                     " of a matrix of [", matrix.out(), ", ", matrix.in(),
                     "], expected one, one a row or one for each block");
  return counts;
}

// The run that one of `count` scales is of: the usual one if that fits, which may leave a smaller
// last one, or else the same for all; 0 if the count doesn't say.
int64_t scaled_run(int64_t size, int64_t count) {
  constexpr int64_t kUsualBlock = 128;
  if (count > 1 && (size + kUsualBlock - 1) / kUsualBlock == count) return kUsualBlock;
  return size % count == 0 ? size / count : 0;
}

MatrixFormat describe_scaled_floats(const StoredMatrix& matrix) {
  const TensorMeta& weight = matrix.part("weight");
  matrix.check_shape(weight, matrix.out(), matrix.in());
  check<FormatError>(weight.dtype == Dtype::kF8E4M3, matrix.where(weight), "type ",
                     info(weight.dtype).name, ", expected F8_E4M3 of the types of 8 bits");
  const TensorMeta* scales = matrix.find("weight_scale_inv");
  if (scales == nullptr) scales = matrix.find("weight_scale");
  if (scales == nullptr) {
    core::fail<FormatError>(matrix.where(weight), "F8_E4M3 without scales, expected ",
                            quote(weight.name + "_scale_inv"), " or ",
                            quote(weight.name + "_scale"), "; get the whole checkpoint");
  }
  matrix.check_floating(*scales);
  const ScaleCounts counts = scale_counts(matrix, *scales);
  MatrixFormat format = one_tensor_format(weight.dtype);
  format.kind = MatrixKind::kScaledFloats;
  format.scheme = "fp8";
  format.bits = info(weight.dtype).block_bytes * 8;
  format.scales = {scales->name, counts.out, counts.in, scaled_run(matrix.out(), counts.out),
                   scaled_run(matrix.in(), counts.in)};
  format.beside = {scales->name};
  return format;
}

// --- MLX's: <base>.weight in words, <base>.scales, and for affine <base>.biases.

bool has_words(const StoredMatrix& matrix) {
  const TensorMeta* weight = matrix.find("weight");
  return weight != nullptr && is_word(weight->dtype);
}

bool has_words_and_byte_scales(const StoredMatrix& matrix) {
  const TensorMeta* scales = matrix.find("scales");
  return has_words(matrix) && scales != nullptr && scales->dtype == Dtype::kU8;
}

struct WordSizes {
  int64_t bits = 0;
  int64_t group_size = 0;
};

// Of words and scales that fit [out, in].
WordSizes word_sizes(const StoredMatrix& matrix) {
  const TensorMeta& weight = matrix.part("weight");
  const TensorMeta& scales = matrix.part("scales");
  const int64_t words = columns_of(weight), groups = columns_of(scales), in = matrix.in();
  const bool fits =
      words > 0 && groups > 0 && in % groups == 0 && words <= in && (words * kWordBits) % in == 0;
  check<FormatError>(fits, matrix.where(weight), "packed ", list_text(weight.shape),
                     " with scales ", list_text(scales.shape), ", expected a quantized matrix of [",
                     matrix.out(), ", ", in, "]");
  matrix.check_shape(weight, matrix.out(), words);
  matrix.check_shape(scales, matrix.out(), groups);
  return {words * kWordBits / in, in / groups};
}

MatrixFormat describe_affine(const StoredMatrix& matrix) {
  const auto [bits, group_size] = word_sizes(matrix);
  const TensorMeta& weight = matrix.part("weight");
  const TensorMeta& scales = matrix.part("scales");
  const TensorMeta& offsets = matrix.part("biases");
  matrix.check_shape(offsets, matrix.out(), matrix.in() / group_size);
  matrix.check_floating(scales);
  check<FormatError>(offsets.dtype == scales.dtype, matrix.where(offsets), info(offsets.dtype).name,
                     " biases with ", info(scales.dtype).name, " scales, expected one type");
  check<FormatError>((bits >= 2 && bits <= 6) || bits == 8, matrix.where(weight), bits,
                     "-bit values, expected 2, 3, 4, 5, 6 or 8 bits");
  check<FormatError>(group_size % 8 == 0, matrix.where(weight), "quant groups of ", group_size,
                     ", expected a multiple of 8");
  MatrixFormat format = affine_format(bits, group_size);
  format.parts[0].bits = bits;
  return format;
}

MatrixFormat describe_microscaled(const StoredMatrix& matrix) {
  struct Scheme {
    const char* name;
    int64_t bits, group_size;
  };
  constexpr Scheme kSchemes[] = {{"mxfp4", 4, 32}, {"mxfp8", 8, 32}, {"nvfp4", 4, 16}};
  const auto [bits, group_size] = word_sizes(matrix);
  for (const Scheme& scheme : kSchemes) {
    if (scheme.bits != bits || scheme.group_size != group_size) continue;
    MatrixFormat format;
    format.kind = MatrixKind::kMicroscaled;
    format.scheme = format.text = scheme.name;
    format.bits = bits;
    format.group_size = format.in_unit = group_size;
    add_part(format, ".weight", 0, 1).bits = bits;
    add_part(format, ".scales", 0, 1).per_in = group_size;
    return format;
  }
  core::fail<FormatError>(matrix.where(matrix.part("weight")), bits,
                          "-bit floats in quant groups of ", group_size,
                          ", expected mxfp4 (4, 32), mxfp8 (8, 32) or nvfp4 (4, 16)");
}

// --- gpt-oss's experts: <base>_blocks [stack, out, groups, 16] and <base>_scales, mxfp4; or <base>
// alone, plain and transposed.

bool has_byte_blocks(const StoredMatrix& matrix) {
  return matrix.file().find(matrix.ref().base + "_blocks") != nullptr;
}

MatrixFormat describe_byte_blocks(const StoredMatrix& matrix) {
  constexpr int64_t kGroup = 32, kBits = 4;
  const std::string& base = matrix.ref().base;
  const TensorMeta& blocks = matrix.file().require(base + "_blocks");
  const TensorMeta& scales = matrix.file().require(base + "_scales");
  const int64_t groups = matrix.in() / kGroup;
  matrix.check_shape(scales, matrix.out(), groups);
  std::vector<int64_t> expected = {matrix.out(), groups, kGroup * kBits / 8};
  if (matrix.ref().stack > 0) expected.insert(expected.begin(), matrix.ref().stack);
  check<FormatError>(blocks.shape == expected && blocks.dtype == Dtype::kU8 &&
                         scales.dtype == Dtype::kU8 && matrix.in() % kGroup == 0,
                     matrix.where(blocks), info(blocks.dtype).name, " ", list_text(blocks.shape),
                     " with ", info(scales.dtype).name, " scales, expected U8 ",
                     list_text(expected), " with U8");
  MatrixFormat format;
  format.kind = MatrixKind::kMicroscaled;
  format.scheme = format.text = "mxfp4";
  format.bits = kBits;
  format.group_size = format.in_unit = kGroup;
  MatrixPart& part = add_part(format, ".weight", 0, 1);
  part.tensor = blocks.name;
  part.bits = kBits;
  part.is_grouped = true;
  MatrixPart& scale = add_part(format, ".scales", 0, 1);
  scale.tensor = scales.name;
  scale.per_in = kGroup;
  return format;
}

bool is_bare(const StoredMatrix& matrix) {
  return matrix.find("weight") == nullptr && matrix.file().find(matrix.ref().base) != nullptr;
}

MatrixFormat describe_bare(const StoredMatrix& matrix) {
  const TensorMeta& tensor = matrix.file().require(matrix.ref().base);
  matrix.check_shape(tensor, matrix.in(), matrix.out());
  check<FormatError>(is_floating(tensor.dtype), matrix.where(tensor), "type ",
                     info(tensor.dtype).name, ", expected a floating type");
  MatrixFormat format = one_tensor_format(tensor.dtype);
  format.parts[0].tensor = tensor.name;
  format.parts[0].is_transposed = true;
  return format;
}

// One stored format: what it is recognized by, and its parts and units, checked.
struct FormatRow {
  MatrixKind kind;
  bool (*is_stored_so)(const StoredMatrix& matrix);
  MatrixFormat (*describe)(const StoredMatrix& matrix);
};

// A row comes before those that it is a special case of. How the parts are decoded stands in
// load_tensor.cpp's table, which has a row for each of these.
constexpr std::array<FormatRow, kNumMatrixKinds + 3> kFormats = {{
    {MatrixKind::kMicroscaled, has_byte_blocks, describe_byte_blocks},
    {MatrixKind::kCodebook, has_codebook, describe_codebook},
    {MatrixKind::kDense, is_bare, describe_bare},
    {MatrixKind::kAwqRows, is_awq_rows, describe_awq_rows},
    {MatrixKind::kAwq, is_awq, describe_awq},
    {MatrixKind::kGptq, is_gptq, describe_gptq},
    {MatrixKind::kMicroscaled, has_words_and_byte_scales, describe_microscaled},
    {MatrixKind::kAffine, has_words, describe_affine},
    {MatrixKind::kGgufBlocks, has_blocks, describe_one_tensor},
    {MatrixKind::kScaledFloats, has_float_bytes, describe_scaled_floats},
    {MatrixKind::kScaledIntegers, has_byte_rows, describe_byte_rows},
    {MatrixKind::kScaledIntegers, has_scaled_integers, describe_scaled_integers},
    {MatrixKind::kDense, is_anything, describe_one_tensor},
}};

}  // namespace

MatrixFormat one_tensor_format(Dtype dtype) {
  const DtypeInfo& type = info(dtype);
  MatrixFormat format;
  format.kind = type.is_block() ? MatrixKind::kGgufBlocks : MatrixKind::kDense;
  format.group_size = format.in_unit = type.block_elements;
  format.text = type.name;
  add_part(format, ".weight", 0, 1);
  return format;
}

MatrixFormat affine_format(int64_t bits, int64_t group_size) {
  MatrixFormat format;
  format.kind = MatrixKind::kAffine;
  format.scheme = "affine";
  format.bits = bits;
  format.group_size = format.in_unit = group_size;
  format.text = join("affine ", bits, "-bit g", group_size);
  add_part(format, ".weight", 0, 1);
  add_part(format, ".scales", 0, 1).per_in = group_size;
  add_part(format, ".biases", 0, 1).per_in = group_size;
  return format;
}

bool has_matrix(const TensorFile& file, const std::string& base) {
  for (const char* suffix : {".weight", ".qweight", ".weight_packed", "_blocks", ""}) {
    if (file.find(base + suffix) != nullptr) return true;
  }
  return false;
}

MatrixFormat matrix_format(const TensorFile& file, const MatrixRef& matrix) {
  const StoredMatrix stored(file, matrix);
  const auto* const row = std::ranges::find_if(
      kFormats, [&](const FormatRow& each) { return each.is_stored_so(stored); });
  MatrixFormat format = row->describe(stored);
  stored.name_tensors(format);
  return format;
}

}  // namespace weft::io
