#include "weft/quant/kernels/panel_select.h"

#include <vector>

#include "weft/quant/kernels/select.h"

namespace weft::quant::kernels {

std::span<const PanelKernel* const> runnable_panel_kernels() {
  static const std::vector<const PanelKernel*> runnable = [] {
    std::vector<const PanelKernel*> found;
#if defined(__x86_64__)
    for (const PanelKernel* kernel :
         {&kAvx512Bf16PanelKernel, &kAvx512VnniPanelKernel, &kAvx2PanelKernel}) {
      if (kernel->runs_here()) found.push_back(kernel);
    }
#endif
    found.push_back(&kPlainPanelKernel);
    return found;
  }();
  return runnable;
}

const PanelKernel& active_panel_kernel() {
#if defined(__x86_64__)
  if (&active_kernel() == &kAvx512Kernel) return *runnable_panel_kernels().front();
  if (&active_kernel() == &kAvx2Kernel && kAvx2PanelKernel.runs_here()) return kAvx2PanelKernel;
#endif
  return kPlainPanelKernel;
}

}  // namespace weft::quant::kernels
