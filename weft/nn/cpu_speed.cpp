#include "weft/nn/cpu_speed.h"

#include <ATen/Context.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace weft::nn {
namespace {

// Whether the CPU multiplies matrices of bfloat16 in tiles: CPUID leaf 7, EDX bit 22.
bool has_amx() {
#if defined(__x86_64__)
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (edx >> 22 & 1) != 0;
#else
  return false;
#endif
}

}  // namespace

void use_fast_cpu() {
  if (!has_amx()) at::globalContext().setFloat32MatmulPrecision("medium");
#ifdef __GLIBC__
  constexpr int kMost = 1 << 30;
  mallopt(M_MMAP_THRESHOLD, kMost);
  mallopt(M_TRIM_THRESHOLD, kMost);
  mallopt(M_TOP_PAD, 64 << 20);
#endif
}

}  // namespace weft::nn
