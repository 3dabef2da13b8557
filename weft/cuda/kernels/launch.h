#pragma once

#include "weft/cuda/runtime.h"

namespace weft::cuda {

/// Begins a kernel of blocks of `threads` in stream(), each with `shared_bytes` of shared memory
/// besides what the kernel declares (launched_memory() of mma.h). Throws InternalError if it can't
/// begin.
template <class Call>
void launch(void (*kernel)(Call), dim3 blocks, unsigned threads, Call call,
            size_t shared_bytes = 0) {
  // More must be asked for.
  constexpr size_t kGranted = 48 << 10;
  if (shared_bytes > kGranted) {
    check_cuda(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                    cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(shared_bytes)),
               "cudaFuncSetAttribute");
  }
  void* arguments[] = {&call};
  check_cuda(cudaLaunchKernel(kernel, blocks, dim3(threads), arguments, shared_bytes, stream()),
             "cudaLaunchKernel");
}

/// How many blocks of `size` cover `count`.
inline unsigned blocks_of(int64_t count, int64_t size) {
  return static_cast<unsigned>((count + size - 1) / size);
}

}  // namespace weft::cuda
