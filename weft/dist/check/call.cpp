#include "weft/dist/check/call.h"

#include "weft/core/error.h"

namespace weft::dist {

Call call_of(OpKind kind, std::string text) {
  Call call;
  call.agreed = text;
  call.kind = kind;
  call.text = std::move(text);
  return call;
}

Call gather_call(const at::Tensor& shard, int64_t dim, const std::vector<int64_t>& sizes) {
  const std::string how =
      core::join(" along dim ", dim,
                 sizes.empty() ? std::string() : core::join(" of ", core::list_text(sizes)));
  auto others = shard.sizes().vec();
  others[static_cast<size_t>(dim)] = -1;
  Call call = call_of(OpKind::kAllGather, core::join(tensor_text(shard), how));
  call.agreed = core::join(dtype_text(shard.scalar_type()), core::list_text(others), how);
  return call;
}

std::string dtype_text(at::ScalarType dtype) {
  switch (dtype) {
    case at::kByte:
      return "uint8";
    case at::kChar:
      return "int8";
    case at::kShort:
      return "int16";
    case at::kInt:
      return "int32";
    case at::kLong:
      return "int64";
    case at::kHalf:
      return "float16";
    case at::kBFloat16:
      return "bfloat16";
    case at::kFloat:
      return "float32";
    case at::kDouble:
      return "float64";
    case at::kBool:
      return "bool";
    default:
      return c10::toString(dtype);
  }
}

std::string tensor_text(const at::Tensor& x) {
  if (!x.defined()) return "no tensor";
  return core::join(dtype_text(x.scalar_type()), ' ', core::list_text(x.sizes()));
}

std::string tensors_text(const std::vector<at::Tensor>& tensors) {
  std::string text;
  for (const at::Tensor& x : tensors) text += (text.empty() ? "" : ", ") + tensor_text(x);
  return text;
}

std::string shapes_text(const std::vector<at::Tensor>& tensors) {
  std::string text;
  for (const at::Tensor& x : tensors) {
    text += (text.empty() ? "" : ", ") + core::list_text(x.sizes());
  }
  return text;
}

std::string reduce_text(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kAverage:
      return "average";
    case ReduceOp::kMin:
      return "min";
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kProduct:
      return "product";
  }
  core::fail<core::InternalError>("dist.check: unknown reduction");
}

std::string reduce_text(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      return "sum";
    case c10d::ReduceOp::AVG:
      return "average";
    case c10d::ReduceOp::MIN:
      return "min";
    case c10d::ReduceOp::MAX:
      return "max";
    case c10d::ReduceOp::PRODUCT:
      return "product";
    default:
      return core::join("reduction ", static_cast<int>(op.op_));
  }
}

}  // namespace weft::dist
