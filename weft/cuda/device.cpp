#include "weft/cuda/device.h"

#include <bit>

#include "weft/core/error.h"
#ifdef WEFT_HAS_CUDA
#include "weft/cuda/runtime.h"
#endif

namespace weft::cuda {

using core::ConfigError;

#ifdef WEFT_HAS_CUDA
namespace {

// How many GPUs there are; `error` says why none.
int count_devices(cudaError_t* error) {
  int count = 0;
  *error = cudaGetDeviceCount(&count);
  if (*error == cudaSuccess) return count;
  // The error is reported here, so the next call must not find it again.
  static_cast<void>(cudaGetLastError());
  return 0;
}

}  // namespace

bool is_built() { return true; }

bool has_device() {
  cudaError_t error = cudaSuccess;
  return count_devices(&error) > 0;
}

void select_device(const std::string& where, int64_t local_rank) {
  cudaError_t error = cudaSuccess;
  const int count = count_devices(&error);
  core::check<ConfigError>(count > 0, where, ": cuda, expected an NVIDIA GPU and its driver, got ",
                           error == cudaSuccess ? "no device" : cudaGetErrorString(error),
                           "; use --device cpu");
  check_cuda(cudaSetDevice(static_cast<int>(local_rank % count)), "cudaSetDevice");
}

std::array<int64_t, 2> device_uuid() {
  int device = 0;
  check_cuda(cudaGetDevice(&device), "cudaGetDevice");
  cudaDeviceProp properties = {};
  check_cuda(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  return std::bit_cast<std::array<int64_t, 2>>(properties.uuid);
}
#else
bool is_built() { return false; }

bool has_device() { return false; }

void select_device(const std::string& where, int64_t /*local_rank*/) { require_built(where); }

std::array<int64_t, 2> device_uuid() {
  require_built("cuda.device_uuid");
  return {};
}
#endif

void require_built(const std::string& where) {
  core::check<ConfigError>(is_built(), where,
                           ": cuda, expected a build with CUDA, got one without; ",
                           "build where nvcc is found, with -DWEFT_CUDA=ON, or use --device cpu");
}

}  // namespace weft::cuda
