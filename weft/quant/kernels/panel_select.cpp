#include "weft/quant/kernels/panel_select.h"

#include <vector>

#include "weft/quant/kernels/select.h"

namespace weft::quant::kernels {
namespace {

// Whether what WEFT_CPU_KERNEL chose allows a kernel.
bool goes_with(const Kernel& own, const PanelKernel& kernel) {
#if defined(__x86_64__)
  if (&kernel == &kAmxPanelKernel) return own.uses_tiles;
  if (&kernel == &kAvx2PanelKernel) return &own != &kPlainKernel;
  if (&kernel != &kPlainPanelKernel) return own.uses_tiles || &own == &kAvx512Kernel;
#endif
  return &kernel == &kPlainPanelKernel;
}

}  // namespace

std::span<const PanelKernel* const> runnable_panel_kernels() {
  static const std::vector<const PanelKernel*> runnable = [] {
    std::vector<const PanelKernel*> found;
#if defined(__x86_64__)
    for (const PanelKernel* kernel :
         {&kAmxPanelKernel, &kAvx512Bf16PanelKernel, &kAvx512VnniPanelKernel, &kAvx2PanelKernel}) {
      if (kernel->runs_here()) found.push_back(kernel);
    }
#endif
    found.push_back(&kPlainPanelKernel);
    return found;
  }();
  return runnable;
}

const PanelKernel& active_panel_kernel() {
  const Kernel& own = active_kernel();
  for (const PanelKernel* kernel : runnable_panel_kernels()) {
    if (goes_with(own, *kernel)) return *kernel;
  }
  return kPlainPanelKernel;
}

}  // namespace weft::quant::kernels
