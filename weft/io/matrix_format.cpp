#include "weft/io/matrix_format.h"

#include "weft/core/error.h"

namespace weft::io {
namespace {

using core::check;
using core::FormatError;
using core::join;
using core::list_text;
using core::quote;

constexpr int64_t kWordBits = 32;

bool is_floating(Dtype dtype) {
  return dtype == Dtype::kF64 || dtype == Dtype::kF32 || dtype == Dtype::kF16 ||
         dtype == Dtype::kBF16;
}

bool is_block(Dtype dtype) { return info(dtype).block_elements > 1; }

bool is_word(Dtype dtype) { return dtype == Dtype::kU32 || dtype == Dtype::kI32; }

// Finds one matrix's tensors in a file.
class Finder {
 public:
  Finder(const TensorFile& file, const MatrixRef& matrix) : file_(file), matrix_(matrix) {}

  MatrixFormat find() const {
    if (file_.find(matrix_.base + ".qweight") != nullptr) return packed_by_column();
    const TensorMeta& weight = part("weight");
    if (is_word(weight.dtype)) return mlx(weight);
    check_shape(weight, matrix_.out, matrix_.in);
    const std::string name(info(weight.dtype).name);
    check<FormatError>(is_floating(weight.dtype) || is_block(weight.dtype), where(weight), "type ",
                       name, ", expected a floating or quantized type");
    MatrixFormat format;
    format.kind = is_block(weight.dtype) ? MatrixKind::kGgufBlocks : MatrixKind::kDense;
    format.group_size = info(weight.dtype).block_elements;
    format.in_unit = format.group_size;
    format.text = name;
    add(format, weight, ".weight", 0, 1);
    return format;
  }

 private:
  const TensorMeta& part(const char* suffix) const {
    return file_.require(join(matrix_.base, ".", suffix));
  }

  std::string where(const TensorMeta& tensor) const {
    return join(file_.path(), ": tensor ", quote(tensor.name), ": ");
  }

  std::vector<int64_t> stacked(int64_t rows, int64_t columns) const {
    if (matrix_.stack > 0) return {matrix_.stack, rows, columns};
    return {rows, columns};
  }

  void check_shape(const TensorMeta& tensor, int64_t rows, int64_t columns) const {
    const std::vector<int64_t> expected = stacked(rows, columns);
    check<FormatError>(tensor.shape == expected, where(tensor), "shape ", list_text(tensor.shape),
                       ", expected ", list_text(expected),
                       "; the file and the model's config disagree");
  }

  // Sizes of the last two dims.
  static int64_t rows_of(const TensorMeta& tensor) {
    return tensor.shape.size() < 2 ? 0 : tensor.shape[tensor.shape.size() - 2];
  }
  static int64_t columns_of(const TensorMeta& tensor) {
    return tensor.shape.empty() ? 0 : tensor.shape.back();
  }

  void check_floating(const TensorMeta& scales) const {
    check<FormatError>(is_floating(scales.dtype) && scales.dtype != Dtype::kF64, where(scales),
                       info(scales.dtype).name, " scales, expected F32, F16 or BF16");
  }

  MatrixPart& add(MatrixFormat& format, const TensorMeta& tensor, const char* suffix,
                  int64_t out_dim, int64_t in_dim) const {
    MatrixPart& part = format.parts.emplace_back();
    part.tensor = tensor.name;
    part.suffix = suffix;
    part.out_dim = out_dim;
    part.in_dim = in_dim;
    return part;
  }

  // <base>.weight in words, <base>.scales, and for affine <base>.biases.
  MatrixFormat mlx(const TensorMeta& weight) const {
    const TensorMeta& scales = part("scales");
    const int64_t words = columns_of(weight), groups = columns_of(scales);
    const bool fits = words > 0 && groups > 0 && matrix_.in % groups == 0 && words <= matrix_.in &&
                      (words * kWordBits) % matrix_.in == 0;
    check<FormatError>(fits, where(weight), "packed ", list_text(weight.shape), " with scales ",
                       list_text(scales.shape), ", expected a quantized matrix of [", matrix_.out,
                       ", ", matrix_.in, "]");
    MatrixFormat format;
    format.bits = words * kWordBits / matrix_.in;
    format.group_size = matrix_.in / groups;
    format.in_unit = format.group_size;
    check_shape(weight, matrix_.out, words);
    check_shape(scales, matrix_.out, groups);
    add(format, weight, ".weight", 0, 1).bits = format.bits;
    add(format, scales, ".scales", 0, 1).per_in = format.group_size;
    if (scales.dtype == Dtype::kU8) {
      format.kind = MatrixKind::kMicroscaled;
      format.text = microscaled_name(format, weight);
      return format;
    }
    format.kind = MatrixKind::kAffine;
    format.text = join("affine ", format.bits, "-bit g", format.group_size);
    const TensorMeta& offsets = part("biases");
    check_shape(offsets, matrix_.out, groups);
    check_floating(scales);
    check<FormatError>(offsets.dtype == scales.dtype, where(offsets), info(offsets.dtype).name,
                       " biases with ", info(scales.dtype).name, " scales, expected one type");
    add(format, offsets, ".biases", 0, 1).per_in = format.group_size;
    check_bits(format, weight);
    return format;
  }

  void check_bits(const MatrixFormat& format, const TensorMeta& weight) const {
    const int64_t bits = format.bits;
    check<FormatError>((bits >= 2 && bits <= 6) || bits == 8, where(weight), bits,
                       "-bit values, expected 2, 3, 4, 5, 6 or 8 bits");
    check<FormatError>(format.group_size % 8 == 0, where(weight), "quant groups of ",
                       format.group_size, ", expected a multiple of 8");
  }

  std::string microscaled_name(const MatrixFormat& format, const TensorMeta& weight) const {
    if (format.bits == 4 && format.group_size == 32) return "mxfp4";
    if (format.bits == 8 && format.group_size == 32) return "mxfp8";
    if (format.bits == 4 && format.group_size == 16) return "nvfp4";
    core::fail<FormatError>(where(weight), format.bits, "-bit floats in quant groups of ",
                            format.group_size,
                            ", expected mxfp4 (4, 32), mxfp8 (8, 32) or nvfp4 (4, 16)");
  }

  // Reads <base>.qweight, .qzeros and .scales; AWQ packs along `out`, GPTQ along `in`.
  MatrixFormat packed_by_column() const {
    const TensorMeta& weight = part("qweight");
    const TensorMeta& zeros = part("qzeros");
    const TensorMeta& scales = part("scales");
    const int64_t in = matrix_.in, out = matrix_.out, groups = rows_of(scales);
    const bool is_awq = rows_of(weight) == in;
    const int64_t bits = is_awq ? (out > 0 ? columns_of(weight) * kWordBits / out : 0)
                                : (in > 0 ? rows_of(weight) * kWordBits / in : 0);
    const bool fits = is_word(weight.dtype) && is_word(zeros.dtype) &&
                      (bits == 4 || (!is_awq && (bits == 2 || bits == 8))) && groups > 0 &&
                      in % groups == 0;
    const int64_t per_word = fits ? kWordBits / bits : 1;
    check<FormatError>(fits && out % per_word == 0 && (in / groups) % per_word == 0, where(weight),
                       "packed ", list_text(weight.shape), " with scales ", list_text(scales.shape),
                       is_awq ? ", expected a 4-bit AWQ matrix of ["
                              : ", expected a GPTQ matrix of 2, 4 or 8 bits and of [",
                       out, ", ", in, "]");
    MatrixFormat format;
    format.kind = is_awq ? MatrixKind::kAwq : MatrixKind::kGptq;
    format.bits = bits;
    format.group_size = in / groups;
    format.in_unit = format.group_size;
    format.out_unit = per_word;
    format.text = join(is_awq ? "awq " : "gptq ", bits, "-bit g", format.group_size);
    check_floating(scales);
    check_shape(weight, is_awq ? in : in / per_word, is_awq ? out / per_word : out);
    check_shape(zeros, groups, out / per_word);
    check_shape(scales, groups, out);
    MatrixPart& packed = add(format, weight, ".qweight", 1, 0);
    (is_awq ? packed.per_out : packed.per_in) = per_word;
    MatrixPart& packed_zeros = add(format, zeros, ".qzeros", 1, 0);
    packed_zeros.per_out = per_word;
    packed_zeros.per_in = format.group_size;
    add(format, scales, ".scales", 1, 0).per_in = format.group_size;
    add_group_index(format);
    return format;
  }

  void add_group_index(MatrixFormat& format) const {
    const TensorMeta* index = file_.find(matrix_.base + ".g_idx");
    if (index == nullptr) return;
    check<FormatError>(format.kind == MatrixKind::kGptq && index->dtype == Dtype::kI32 &&
                           index->shape == std::vector<int64_t>{matrix_.in},
                       where(*index), info(index->dtype).name, " ", list_text(index->shape),
                       ", expected I32 [", matrix_.in, "]");
    add(format, *index, ".g_idx", -1, 0);
  }

  const TensorFile& file_;
  const MatrixRef& matrix_;
};

}  // namespace

MatrixFormat matrix_format(const TensorFile& file, const MatrixRef& matrix) {
  return Finder(file, matrix).find();
}

}  // namespace weft::io
