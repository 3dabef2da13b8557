#include "weft/models/convert/export_types.h"

#include <ATen/ops/isfinite.h>

#include "weft/core/error.h"

namespace weft::models {

io::Dtype file_type(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return io::Dtype::kF32;
    case at::kHalf:
      return io::Dtype::kF16;
    case at::kBFloat16:
      return io::Dtype::kBF16;
    default:
      core::fail<core::ConfigError>("models.export: type ", c10::toString(type),
                                    ", expected float32, float16 or bfloat16");
  }
}

at::ScalarType torch_type(io::Dtype dtype) {
  if (dtype == io::Dtype::kF16) return at::kHalf;
  return dtype == io::Dtype::kBF16 ? at::kBFloat16 : at::kFloat;
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
