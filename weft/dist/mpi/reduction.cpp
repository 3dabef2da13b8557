#include "weft/dist/mpi/reduction.h"

#include <ATen/ATen.h>

#include <cmath>
#include <cstring>

#include "weft/core/error.h"
#include "weft/dist/group_tensors.h"
#include "weft/dist/mpi/runtime.h"

namespace weft::dist {
namespace {

const char* op_text(ReduceOp op) {
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
  return "unknown reduction";
}

MPI_Datatype datatype_of(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::ScalarType::Float:
    case c10::ScalarType::Half:
    case c10::ScalarType::BFloat16:
      return MPI_FLOAT;
    case c10::ScalarType::Double:
      return MPI_DOUBLE;
    case c10::ScalarType::Bool:
    case c10::ScalarType::Byte:
      return MPI_UINT8_T;
    case c10::ScalarType::Char:
      return MPI_INT8_T;
    case c10::ScalarType::Short:
      return MPI_INT16_T;
    case c10::ScalarType::Int:
      return MPI_INT32_T;
    case c10::ScalarType::Long:
      return MPI_INT64_T;
    default:
      return MPI_DATATYPE_NULL;
  }
}

// MPI leaves open what the least of a number and NaN is, and ranks could differ: here NaN wins.
template <class T, bool kLeast>
void combine(void* in, void* in_out, int* count, MPI_Datatype*) {
  const T* from = static_cast<const T*>(in);
  T* to = static_cast<T*>(in_out);
  for (int i = 0; i < *count; ++i) {
    const bool takes = kLeast ? from[i] < to[i] : from[i] > to[i];
    if (takes || std::isnan(from[i])) to[i] = from[i];
  }
}

template <class T, bool kLeast>
MPI_Op extremum() {
  static const MPI_Op kOp = [] {
    MPI_Op op = MPI_OP_NULL;
    check_mpi(MPI_Op_create(combine<T, kLeast>, 1, &op), "dist.mpi: MPI_Op_create");
    return op;
  }();
  return kOp;
}

MPI_Op extremum_of(MPI_Datatype type, bool least) {
  if (type == MPI_FLOAT) return least ? extremum<float, true>() : extremum<float, false>();
  if (type == MPI_DOUBLE) return least ? extremum<double, true>() : extremum<double, false>();
  return least ? MPI_MIN : MPI_MAX;
}

// A bool is a byte of 0 or 1: any is the largest, all the smallest.
MPI_Op mpi_op(c10::ScalarType dtype, MPI_Datatype type, ReduceOp op) {
  const bool is_bool = dtype == c10::ScalarType::Bool;
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      return is_bool ? MPI_MAX : MPI_SUM;
    case ReduceOp::kProduct:
      return is_bool ? MPI_MIN : MPI_PROD;
    case ReduceOp::kMin:
      return extremum_of(type, true);
    case ReduceOp::kMax:
      break;
  }
  return extremum_of(type, false);
}

at::Tensor view_of(std::byte* data, c10::ScalarType dtype, int64_t count) {
  return at::from_blob(data, {count}, at::TensorOptions().dtype(dtype));
}

}  // namespace

void check_mpi_reduction(c10::ScalarType dtype, ReduceOp op) {
  const bool known = datatype_of(dtype) != MPI_DATATYPE_NULL &&
                     (op != ReduceOp::kAverage || c10::isFloatingType(dtype));
  core::check<core::ShapeError>(known, "dist.mpi: ", op_text(op), " of ", c10::toString(dtype),
                                ": expected float32, float64, bfloat16, float16, int8, uint8, "
                                "int16, int32 or int64 (average: "
                                "floating types only; bool: min, max); convert the tensor first");
}

MpiReduction mpi_reduction(c10::ScalarType dtype, ReduceOp op) {
  check_mpi_reduction(dtype, op);
  MpiReduction how;
  how.type = datatype_of(dtype);
  how.op = mpi_op(dtype, how.type, op);
  how.dtype = dtype;
  how.item = c10::elementSize(dtype);
  how.wire = is_half(dtype) ? c10::ScalarType::Float : dtype;
  how.wire_bytes = c10::elementSize(how.wire);
  how.is_average = op == ReduceOp::kAverage;
  return how;
}

void pack_elements(const MpiReduction& how, const std::byte* from, std::byte* to, int64_t count) {
  if (count == 0) return;
  if (!how.widens()) {
    std::memcpy(to, from, static_cast<size_t>(count) * how.item);
    return;
  }
  view_of(to, how.wire, count).copy_(view_of(const_cast<std::byte*>(from), how.dtype, count));
}

void unpack_elements(const MpiReduction& how, std::byte* from, std::byte* to, int64_t count,
                     int ranks) {
  if (count == 0) return;
  if (how.is_average) view_of(from, how.wire, count).div_(ranks);
  if (how.widens()) {
    view_of(to, how.dtype, count).copy_(view_of(from, how.wire, count));
  } else if (to != from) {
    std::memcpy(to, from, static_cast<size_t>(count) * how.item);
  }
}

}  // namespace weft::dist
