#include "weft/dist/group_tensors.h"

#include <ATen/ATen.h>

namespace weft::dist {
namespace {}  // namespace

c10d::ReduceOp::RedOpType to_c10d(ReduceOp op) {
  switch (op) {
    case ReduceOp::kMin:
      return c10d::ReduceOp::MIN;
    case ReduceOp::kMax:
      return c10d::ReduceOp::MAX;
    case ReduceOp::kProduct:
      return c10d::ReduceOp::PRODUCT;
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      break;
  }
  return c10d::ReduceOp::SUM;
}

at::Tensor pad_to(const at::Tensor& x, int64_t length) {
  if (x.size(0) == length) return x;
  auto shape = x.sizes().vec();
  shape[0] = length;
  at::Tensor padded = at::zeros(shape, x.options());
  padded.narrow(0, 0, x.size(0)).copy_(x);
  return padded;
}

at::ScalarType type_to_reduce_in(const at::Tensor& x, ReduceOp op, bool is_gloo) {
  const at::ScalarType type = x.scalar_type();
  const bool rounds =
      op == ReduceOp::kAverage || (is_gloo && (op == ReduceOp::kSum || op == ReduceOp::kProduct));
  if (is_half(type) && rounds && x.is_cpu()) return at::kFloat;
  if (is_gloo && type == at::kBool) return at::kByte;
  if (is_gloo && type == at::kShort) return at::kInt;
  return type;
}

std::optional<at::ScalarType> type_to_move_as(at::ScalarType type, bool is_gloo) {
  if (is_gloo && type == at::kShort) return at::kHalf;
  return std::nullopt;
}

}  // namespace weft::dist
