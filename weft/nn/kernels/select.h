#pragma once

#include <span>

#include "weft/nn/kernels/kernel.h"

namespace weft::nn::kernels {

/// All kernels of this build that this machine runs, fastest first.
std::span<const Kernel* const> runnable_kernels();

/// The kernel that this process uses: that of WEFT_CPU_KERNEL, read at the first call, or the
/// fastest. Throws ConfigError for a name that is unknown or that this machine cannot run.
const Kernel& active_kernel();
/// What goes with it for bfloat16; null where the processor has no such instructions.
const HalfAttention* active_half_attention();

/// What goes with it for a cache that many queries read; null where the processor has no tiles.
const PackedAttention* active_packed_attention();

}  // namespace weft::nn::kernels
