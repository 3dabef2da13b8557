#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "weft/dist/shm/reduce.h"

#pragma GCC target("avx2,f16c,avx512f,avx512bw,avx512vl,avx512dq,prefer-vector-width=512")

namespace weft::dist {
namespace {

#include "weft/dist/shm/reduce_loops.inc"

}  // namespace

ReduceKernel lookup_avx512(c10::ScalarType dtype, ShmReduce op) { return lookup(dtype, op); }

}  // namespace weft::dist
