#pragma once

// What weft/cuda uses of CUDA's language and run-time library, for the processor: kernels are
// compiled as C++ from their own sources, and each thread of a block is a fiber that runs until it
// waits for others. So every index, every bound and every wait of a kernel is run without a GPU.
// Memory begins as NaNs and ends before a page that can't be touched, threads of every second
// launch run backwards, and a wait that not all threads reach is an error.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
// Blocks run one after the other.
#define __shared__ static

struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x_in = 1, unsigned y_in = 1, unsigned z_in = 1) : x(x_in), y(y_in), z(z_in) {}
};
extern dim3 threadIdx, blockIdx, blockDim;

enum cudaError_t {
  cudaSuccess,
  cudaErrorInvalidValue,
  cudaErrorMemoryAllocation,
  cudaErrorLaunchFailure
};
enum cudaMemcpyKind { cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost, cudaMemcpyDeviceToDevice };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal };
constexpr unsigned cudaStreamNonBlocking = 1;
using cudaStream_t = struct FiberStream*;
using cudaGraph_t = struct FiberGraph*;
using cudaGraphExec_t = struct FiberGraph*;

// Each process has a GPU of its own, unless the environment has CUDA_ON_CPU_SHARED.
struct cudaDeviceProp {
  struct {
    char bytes[16];
  } uuid;
};

cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaGetLastError();
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value);
const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaMalloc(void** memory, size_t bytes);
cudaError_t cudaFree(void* memory);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind,
                              cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
/// Runs or records it, as a kernel.
extern "C" cudaError_t cudaLaunchHostFunc(cudaStream_t stream, void (*function)(void*), void* data);

namespace weft::test {
/// Runs `thread` for every thread of every block, with shared memory of so many bytes, or records
/// it.
cudaError_t run_on_fibers(dim3 blocks, dim3 threads, size_t shared_bytes,
                          std::function<void()> thread);
/// The block's shared memory of the launch; ends the program if `bytes` is not what was asked for.
void* launched_memory(size_t bytes);
/// What the instruction of mma.h gives to a lane: d = c + a b.
void multiply_fragments(const uint32_t (&a)[4], const uint32_t (&b)[2], const float (&c)[4],
                        float (&d)[4]);
}  // namespace weft::test

template <class Call>
cudaError_t cudaLaunchKernel(void (*kernel)(Call), dim3 blocks, dim3 threads, void** arguments,
                             size_t shared_bytes, cudaStream_t /*stream*/) {
  const Call call = *static_cast<const Call*>(arguments[0]);
  return weft::test::run_on_fibers(blocks, threads, shared_bytes, [kernel, call] { kernel(call); });
}

void __syncthreads();
void __syncwarp();
float __shfl_xor_sync(unsigned lanes, float value, int step);
uint64_t __shfl_xor_sync(unsigned lanes, uint64_t value, int step);
// Fibers are never interrupted.
inline int atomicAdd(int* number, int added) {
  const int before = *number;
  *number += added;
  return before;
}

inline int32_t min(int32_t a, int32_t b) { return a < b ? a : b; }
inline int32_t max(int32_t a, int32_t b) { return a > b ? a : b; }
