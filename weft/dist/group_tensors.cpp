#include "weft/dist/group_tensors.h"

#include <ATen/ATen.h>

#include "weft/core/error.h"

namespace weft::dist {

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

at::ScalarType type_to_reduce_in(at::ScalarType type, ReduceOp op, const Capabilities& can) {
  const bool rounds = op != ReduceOp::kMin && op != ReduceOp::kMax;
  if (is_half(type) && rounds && can.rounds_halves_often) return at::kFloat;
  if (can.reduces.has(type)) return type;
  if (type == at::kBool) return at::kByte;
  if (type == at::kShort) return at::kInt;
  core::fail<core::ShapeError>("dist.Group: reduction of ", c10::toString(type),
                               ": expected float32, float64, bfloat16, float16, int8, uint8, "
                               "int16, int32 or int64 (bool: min, max); convert the tensor first");
}

std::optional<at::ScalarType> type_to_move_as(at::ScalarType type, const Capabilities& can) {
  if (can.moves.has(type)) return std::nullopt;
  for (const at::ScalarType other : {at::kByte, at::kHalf, at::kInt, at::kLong}) {
    if (can.moves.has(other) && c10::elementSize(other) == c10::elementSize(type)) return other;
  }
  core::fail<core::ShapeError>("dist.Group: move of ", c10::toString(type),
                               ": expected elements of 1, 2, 4 or 8 bytes, got ",
                               c10::elementSize(type), "; convert the tensor first");
}

}  // namespace weft::dist
