#pragma once

namespace weft::nn {

/// Settings of this process that make libtorch fast on CPUs. Called once, when a program starts.
///
/// - float32 products go to oneDNN ("medium" precision), twice as fast as MKL on AMD's CPUs and
///   still float32 there. On a CPU with AMX it would compute them in bfloat16, so there they stay
///   with MKL.
/// - Memory that was freed stays with the process: a tensor of some megabytes would otherwise be
///   fresh memory, which the system clears page by page, each time (glibc's malloc alone).
void use_fast_cpu();

}  // namespace weft::nn
