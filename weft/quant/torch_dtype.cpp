#include "weft/quant/torch_dtype.h"

namespace weft::quant {

using core::Dtype;

std::optional<at::ScalarType> torch_dtype(Dtype dtype) {
  switch (dtype) {
    case Dtype::kF64:
      return at::kDouble;
    case Dtype::kF32:
      return at::kFloat;
    case Dtype::kF16:
      return at::kHalf;
    case Dtype::kBF16:
      return at::kBFloat16;
    case Dtype::kU32:
    case Dtype::kI32:
      return at::kInt;
    case Dtype::kI8:
      return at::kChar;
    case Dtype::kU8:
      return at::kByte;
    default:
      return std::nullopt;
  }
}

std::optional<Dtype> floating_dtype(at::ScalarType type) {
  for (const Dtype dtype : {Dtype::kF64, Dtype::kF32, Dtype::kF16, Dtype::kBF16}) {
    if (torch_dtype(dtype) == type) return dtype;
  }
  return std::nullopt;
}

}  // namespace weft::quant
