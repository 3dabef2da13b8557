#if defined(__x86_64__)

#include "weft/nn/kernels/attention_loops.h"
#include "weft/nn/kernels/cached_attention.h"
#include "weft/nn/kernels/row_loops.h"

namespace weft::nn::kernels {
namespace {

struct Types {
  using F = float __attribute__((vector_size(64)));
  using I = int32_t __attribute__((vector_size(64)));
  using U = uint32_t __attribute__((vector_size(64)));
  using Half = uint16_t __attribute__((vector_size(32)));
};
struct Avx512 : Vectors<Types> {
  static constexpr int kGemmRows = 6;
  static constexpr int kGemmVectors = 4;
};

bool runs_here() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
}

}  // namespace

const Kernel kAvx512Kernel = {"avx512",
                              runs_here,
                              attend<Avx512>,
                              attend_backward<Avx512>,
                              attend_cached<Avx512>,
                              rotate<Avx512>,
                              element_kernel<Avx512, float>(),
                              element_kernel<Avx512, uint16_t>()};

}  // namespace weft::nn::kernels

#endif
