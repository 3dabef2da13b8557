#include "weft/io/matrices/codebook.h"

namespace weft::io {
namespace {

using core::check;
using core::FormatError;

constexpr int64_t kCodeBits = 4, kCodesPerByte = 2;

void check_tensor(const StoredMatrix& matrix, const TensorMeta& tensor, Dtype dtype,
                  const std::vector<int64_t>& shape) {
  check<FormatError>(tensor.dtype == dtype && tensor.shape == shape, matrix.where(tensor),
                     info(tensor.dtype).name, " ", core::list_text(tensor.shape), ", expected ",
                     info(dtype).name, " ", core::list_text(shape));
}

// Scales are floats, or codes of 8 bits with scales of their own.
void add_scales(const StoredMatrix& matrix, MatrixFormat& format) {
  const TensorMeta& scales = matrix.part("weight.absmax");
  check<FormatError>(
      (scales.dtype == Dtype::kF32 || scales.dtype == Dtype::kU8) && scales.shape.size() == 1,
      matrix.where(scales), info(scales.dtype).name, " ", core::list_text(scales.shape),
      ", expected a list of F32 or U8");
  format.beside.push_back(scales.name);
  if (scales.dtype == Dtype::kF32) return;
  for (const char* suffix : {"weight.nested_absmax", "weight.nested_quant_map"}) {
    format.beside.push_back(matrix.part(suffix).name);
  }
}

const TensorMeta& state_of(const StoredMatrix& matrix) {
  const TensorMeta* nf4 = matrix.find("weight.quant_state.bitsandbytes__nf4");
  return nf4 != nullptr ? *nf4 : matrix.part("weight.quant_state.bitsandbytes__fp4");
}

}  // namespace

bool has_codebook(const StoredMatrix& matrix) { return matrix.find("weight.quant_map") != nullptr; }

MatrixFormat describe_codebook(const StoredMatrix& matrix) {
  const TensorMeta& weight = matrix.part("weight");
  check<FormatError>(matrix.in() % kCodesPerByte == 0, matrix.where(weight), "rows of ",
                     matrix.in(), " codes, expected an even number");
  check_tensor(matrix, weight, Dtype::kU8, {matrix.out() * matrix.in() / kCodesPerByte, 1});
  const TensorMeta& book = matrix.part("weight.quant_map");
  check_tensor(matrix, book, Dtype::kF32, {int64_t{1} << kCodeBits});
  const TensorMeta& state = state_of(matrix);
  MatrixFormat format;
  format.kind = MatrixKind::kCodebook;
  format.scheme = "bitsandbytes";
  format.bits = kCodeBits;
  format.in_unit = kCodesPerByte;
  format.text = state.name.substr(state.name.size() - 3);
  MatrixPart& part = add_part(format, ".weight", 0, 1);
  part.per_in = kCodesPerByte;
  part.seen_as = {matrix.out(), matrix.in() / kCodesPerByte};
  format.beside = {state.name, book.name};
  add_scales(matrix, format);
  return format;
}

}  // namespace weft::io
