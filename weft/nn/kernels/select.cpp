#include "weft/nn/kernels/select.h"

#include <vector>

#include "weft/quant/kernels/select.h"

namespace weft::nn::kernels {

std::span<const Kernel* const> runnable_kernels() {
  static const std::vector<const Kernel*> runnable = [] {
    std::vector<const Kernel*> found;
#if defined(__x86_64__)
    for (const Kernel* kernel : {&kAvx512Kernel, &kAvx2Kernel}) {
      if (kernel->runs_here()) found.push_back(kernel);
    }
#endif
    found.push_back(&kPlainKernel);
    return found;
  }();
  return runnable;
}

const Kernel& active_kernel() {
  // quant's has checked the name; both know the same ones.
  static const Kernel& kernel = []() -> const Kernel& {
    const auto& own = quant::kernels::active_kernel();
    const std::string_view wanted = own.uses_tiles ? "avx512" : own.name;
    for (const Kernel* each : runnable_kernels()) {
      if (wanted == each->name) return *each;
    }
    return kPlainKernel;
  }();
  return kernel;
}

const HalfAttention* active_half_attention() {
#if defined(__x86_64__)
  static const bool runs = &active_kernel() == &kAvx512Kernel && kAvx512Bf16Attention.runs_here();
  return runs ? &kAvx512Bf16Attention : nullptr;
#else
  return nullptr;
#endif
}

const PackedAttention* active_packed_attention() {
#if defined(__x86_64__)
  static const bool runs = quant::kernels::active_kernel().uses_tiles && kAmxAttention.runs_here();
  return runs ? &kAmxAttention : nullptr;
#else
  return nullptr;
#endif
}

}  // namespace weft::nn::kernels
