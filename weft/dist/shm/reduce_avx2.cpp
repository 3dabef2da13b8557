#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "weft/dist/shm/reduce.h"

#pragma GCC target("avx2,f16c")

namespace weft::dist {
namespace {

#include "weft/dist/shm/reduce_loops.inc"

}  // namespace

ReduceKernel lookup_avx2(c10::ScalarType dtype, ShmReduce op) { return lookup(dtype, op); }

}  // namespace weft::dist
