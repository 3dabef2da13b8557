#pragma once

#include <c10/core/ScalarType.h>

#include <cstddef>
#include <cstdint>

namespace weft::dist {

/// Reductions as the kernels know them; the values travel between ranks.
enum class ShmReduce : uint8_t { kSum = 1, kAverage, kMin, kMax, kProduct };

/// "sum", "average" …
const char* reduce_name(ShmReduce op);

/// Reduces `count` elements of all sources into `out`, element by element in the order of the
/// sources, so that the result does not depend on who computes it. Half types are summed in float
/// and rounded once, to nearest even. `out` may be one of the sources.
using ReduceKernel = void (*)(std::byte* out, const std::byte* const* sources, int num_sources,
                              int64_t count);

/// The kernel for this machine. Throws ShapeError if the type cannot be reduced so: an average
/// needs a floating type; bool knows min (all), max and sum (any), product (all).
ReduceKernel find_reduce_kernel(c10::ScalarType dtype, ShmReduce op);

/// A machine's table of kernels: null where a type cannot be reduced so.
using KernelLookup = ReduceKernel (*)(c10::ScalarType dtype, ShmReduce op);

/// The same loops compiled for any x86-64, for AVX2 with F16C, and for AVX-512.
ReduceKernel lookup_baseline(c10::ScalarType dtype, ShmReduce op);
ReduceKernel lookup_avx2(c10::ScalarType dtype, ShmReduce op);
ReduceKernel lookup_avx512(c10::ScalarType dtype, ShmReduce op);

}  // namespace weft::dist
