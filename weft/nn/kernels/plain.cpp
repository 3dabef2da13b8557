#include "weft/nn/kernels/attention_loops.h"
#include "weft/nn/kernels/cached_attention.h"
#include "weft/nn/kernels/delta_loops.h"
#include "weft/nn/kernels/row_loops.h"

namespace weft::nn::kernels {
namespace {

struct Types {
  using F = float __attribute__((vector_size(16)));
  using I = int32_t __attribute__((vector_size(16)));
  using U = uint32_t __attribute__((vector_size(16)));
  using Half = uint16_t __attribute__((vector_size(8)));
  using Bytes = int8_t __attribute__((vector_size(4)));
};
struct Plain : Vectors<Types> {
  static constexpr int kGemmRows = 4;
  static constexpr int kGemmVectors = 2;
};

bool runs_here() { return true; }

}  // namespace

const Kernel kPlainKernel = {"plain",
                             runs_here,
                             attend<Plain>,
                             attend_backward<Plain>,
                             rotate<Plain>,
                             delta<Plain>,
                             convolve<Plain>,
                             element_kernel<Plain, float>(),
                             element_kernel<Plain, uint16_t>(),
                             cache_kernel<Plain, float>(),
                             cache_kernel<Plain, Float16>(),
                             cache_kernel<Plain, ByteBlock>()};

}  // namespace weft::nn::kernels
