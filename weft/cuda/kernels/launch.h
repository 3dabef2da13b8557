#pragma once

#include "weft/cuda/runtime.h"

namespace weft::cuda {

/// Begins a kernel of blocks of `threads` in stream(). Throws InternalError if it can't begin.
template <class Call>
void launch(void (*kernel)(Call), dim3 blocks, unsigned threads, Call call) {
  void* arguments[] = {&call};
  check_cuda(cudaLaunchKernel(kernel, blocks, dim3(threads), arguments, 0, stream()),
             "cudaLaunchKernel");
}

/// How many blocks of `size` cover `count`.
inline unsigned blocks_of(int64_t count, int64_t size) {
  return static_cast<unsigned>((count + size - 1) / size);
}

}  // namespace weft::cuda
