#include "weft/quant/kernels/panel_select.h"

#include <vector>

#include "weft/quant/kernels/select.h"

namespace weft::quant::kernels {

std::span<const PanelKernel* const> runnable_panel_kernels() {
  static const std::vector<const PanelKernel*> runnable = [] {
    std::vector<const PanelKernel*> found;
#if defined(__x86_64__)
    if (kAvx512VnniPanelKernel.runs_here()) found.push_back(&kAvx512VnniPanelKernel);
#endif
    found.push_back(&kPlainPanelKernel);
    return found;
  }();
  return runnable;
}

const PanelKernel& active_panel_kernel() {
#if defined(__x86_64__)
  const bool is_wide = &active_kernel() == &kAvx512Kernel;
#else
  const bool is_wide = false;
#endif
  return is_wide ? *runnable_panel_kernels().front() : kPlainPanelKernel;
}

}  // namespace weft::quant::kernels
