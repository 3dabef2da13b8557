#include "weft/models/convert/export_types.h"

#include <ATen/ops/isfinite.h>

#include "weft/core/error.h"
#include "weft/models/load/load.h"
#include "weft/quant/torch_dtype.h"

namespace weft::models {

io::Dtype file_type(at::ScalarType type) {
  const auto dtype = quant::floating_dtype(type);
  core::check<core::ConfigError>(dtype && dtype != io::Dtype::kF64, "models.export: type ",
                                 c10::toString(type), ", expected float32, float16 or bfloat16");
  return *dtype;
}

at::ScalarType torch_type(io::Dtype dtype) {
  const bool is_half = dtype == io::Dtype::kF16 || dtype == io::Dtype::kBF16;
  return is_half ? quant::torch_dtype(dtype).value() : at::kFloat;
}

at::ScalarType plain_type(io::MatrixKind kind, io::Dtype stored) {
  return kind == io::MatrixKind::kDense ? torch_type(stored) : plain_half(kind);
}

std::span<const std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

at::Tensor converted(const at::Tensor& numbers, at::ScalarType dtype, const std::string& name) {
  at::Tensor result = numbers.to(dtype).contiguous();
  const bool may_overflow = dtype == at::kHalf && numbers.scalar_type() != at::kHalf;
  core::check<core::FormatError>(!may_overflow || at::isfinite(result).all().item<bool>(),
                                 "tensor ", core::quote(name),
                                 ": holds numbers that float16 can't; use bfloat16 or float32");
  return result;
}

}  // namespace weft::models
