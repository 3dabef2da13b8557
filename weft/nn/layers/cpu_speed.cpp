#include "weft/nn/layers/cpu_speed.h"

#include <ATen/Context.h>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "weft/core/amx.h"

namespace weft::nn {
void use_fast_cpu() {
  if (!core::has_amx()) at::globalContext().setFloat32MatmulPrecision("medium");
#ifdef __GLIBC__
  constexpr int kMost = 1 << 30;
  mallopt(M_MMAP_THRESHOLD, kMost);
  mallopt(M_TRIM_THRESHOLD, kMost);
  mallopt(M_TOP_PAD, 64 << 20);
#endif
}

}  // namespace weft::nn
