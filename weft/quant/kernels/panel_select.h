#pragma once

#include <span>

#include "weft/quant/kernels/panel_kernel.h"

namespace weft::quant::kernels {

/// Those that this machine runs, fastest first.
std::span<const PanelKernel* const> runnable_panel_kernels();

/// The fastest, or the plain one where WEFT_CPU_KERNEL asks for another than avx512. Throws
/// ConfigError as active_kernel does.
const PanelKernel& active_panel_kernel();

}  // namespace weft::quant::kernels
