#if defined(__x86_64__)

#include "weft/nn/kernels/avx512_pairs.h"

namespace weft::nn::kernels {
namespace {

struct File;
using Avx512Bf16 = Avx512Pairs<File>;

bool runs_here() { return __builtin_cpu_supports("avx512bf16"); }

}  // namespace

template <>
struct Step<Avx512Bf16, Pair> : Avx512PairStep {};

const HalfAttention kAvx512Bf16Attention = {runs_here, attend<Avx512Bf16, PairProducts<Avx512Bf16>>,
                                            attend_backward<Avx512Bf16, PairProducts<Avx512Bf16>>};

}  // namespace weft::nn::kernels

#endif
