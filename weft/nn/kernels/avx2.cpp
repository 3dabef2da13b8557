#if defined(__x86_64__)

#include "weft/nn/kernels/attention_loops.h"
#include "weft/nn/kernels/cached_attention.h"
#include "weft/nn/kernels/row_loops.h"

namespace weft::nn::kernels {
namespace {

struct Types {
  using F = float __attribute__((vector_size(32)));
  using I = int32_t __attribute__((vector_size(32)));
  using U = uint32_t __attribute__((vector_size(32)));
  using Half = uint16_t __attribute__((vector_size(16)));
};
struct Avx2 : Vectors<Types> {
  static constexpr int kGemmRows = 6;
  static constexpr int kGemmVectors = 2;
};

bool runs_here() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

}  // namespace

const Kernel kAvx2Kernel = {"avx2",
                            runs_here,
                            attend<Avx2>,
                            attend_backward<Avx2>,
                            attend_cached<Avx2>,
                            rotate<Avx2>,
                            element_kernel<Avx2, float>(),
                            element_kernel<Avx2, uint16_t>()};

}  // namespace weft::nn::kernels

#endif
