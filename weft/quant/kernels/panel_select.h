#pragma once

#include <span>

#include "weft/quant/kernels/panel_kernel.h"

namespace weft::quant::kernels {

/// Those that this machine runs, fastest first.
std::span<const PanelKernel* const> runnable_panel_kernels();

/// The fastest of what WEFT_CPU_KERNEL allows: avx2 and plain are those of these names. Throws
/// ConfigError as active_kernel does.
const PanelKernel& active_panel_kernel();

}  // namespace weft::quant::kernels
