#include "weft/cuda/runtime.h"

#include "weft/core/error.h"

namespace weft::cuda {

void check_cuda(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return;
  const char* text = cudaGetErrorString(error);
  core::check<core::IoError>(error != cudaErrorMemoryAllocation, "cuda.", what, ": ", text,
                             ", expected room on the GPU; use more ranks, a shorter --ctx-size or "
                             "--device cpu");
  core::fail<core::InternalError>("cuda.", what, ": ", text);
}

cudaStream_t stream() {
  static const cudaStream_t only = [] {
    cudaStream_t made = nullptr;
    check_cuda(cudaStreamCreateWithFlags(&made, cudaStreamNonBlocking), "cudaStreamCreate");
    return made;
  }();
  return only;
}

}  // namespace weft::cuda
