#pragma once

#include <cuda_runtime.h>

namespace weft::cuda {

/// Throws unless `error` is cudaSuccess: IoError if the GPU's memory is full, InternalError
/// otherwise. `what` was tried.
void check_cuda(cudaError_t error, const char* what);

/// The stream in which all that weft does on this process's GPU runs, one after the other.
cudaStream_t stream();

}  // namespace weft::cuda
