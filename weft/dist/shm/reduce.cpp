#include "weft/dist/shm/reduce.h"

#include "weft/core/error.h"

namespace weft::dist {
namespace {

KernelLookup choose_lookup() {
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  if (avx2 && avx512) return lookup_avx512;
  return avx2 ? lookup_avx2 : lookup_baseline;
}

}  // namespace

const char* reduce_name(ShmReduce op) {
  switch (op) {
    case ShmReduce::kSum:
      return "sum";
    case ShmReduce::kAverage:
      return "average";
    case ShmReduce::kMin:
      return "min";
    case ShmReduce::kMax:
      return "max";
    case ShmReduce::kProduct:
      return "product";
  }
  return "unknown reduction";
}

ReduceKernel find_reduce_kernel(c10::ScalarType dtype, ShmReduce op) {
  static const KernelLookup kLookup = choose_lookup();
  const ReduceKernel kernel = kLookup(dtype, op);
  core::check<core::ShapeError>(kernel != nullptr, "dist.shm: ", reduce_name(op), " of ",
                                c10::toString(dtype),
                                ": expected float32, float64, bfloat16, float16, int8, uint8, "
                                "int16, int32 or int64 (average: "
                                "floating types only; bool: min, max); convert the tensor first");
  return kernel;
}

}  // namespace weft::dist
