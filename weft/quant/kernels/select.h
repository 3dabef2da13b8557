#pragma once

#include <span>
#include <string>

#include "weft/quant/kernels/kernel.h"

namespace weft::quant::kernels {

/// All kernels of this build, fastest first.
std::span<const Kernel* const> all_kernels();

/// The kernel of `table` called `name`, or the first that this machine runs when `name` is empty.
/// Throws ConfigError for an unknown name or one that this machine cannot run.
const Kernel& select_kernel_of(std::span<const Kernel* const> table, const std::string& name);

/// select_kernel_of all kernels.
const Kernel& select_kernel(const std::string& name);

/// The kernel that this process uses: WEFT_CPU_KERNEL, read at the first call, or the fastest.
/// Throws ConfigError as select_kernel does.
const Kernel& active_kernel();

}  // namespace weft::quant::kernels
