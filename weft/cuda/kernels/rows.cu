#include "weft/cuda/kernels/launch.h"
#include "weft/cuda/kernels/rows.h"
#include "weft/cuda/kernels/warp.h"

namespace weft::cuda {
namespace {

constexpr int kThreads = 256;
// A row is waited for once if all of it is read at once.
constexpr int kNormThreads = 1024, kWarps = kNormThreads / kLanes;

// The sum over a block of kNormThreads, on all of them. `partial` is shared, and free when all have
// returned and synchronized again.
__device__ float block_sum(float value, float (&partial)[kWarps]) {
  const float own = warp_sum(value);
  if (threadIdx.x % kLanes == 0) partial[threadIdx.x / kLanes] = own;
  __syncthreads();
  float sum = 0;
  for (int warp = 0; warp < kWarps; ++warp) sum += partial[warp];
  return sum;
}

// What a block's row of `added` and `bias` is multiplied by before its norm's weight.
__device__ float scale_of_added(const NormCall& call, float (&partial)[kWarps]) {
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * call.width;
  float squares = 0;
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < call.width; i += kNormThreads) {
    const float value = call.added[begin + i] + number_or_zero(call.bias, i);
    squares = fmaf(value, value, squares);
  }
  const float mean = block_sum(squares, partial) / static_cast<float>(call.width);
  return 1 / sqrtf(mean + call.eps);
}

// Element i of the block's row of x with what is added to it.
__device__ float added_up(const NormCall& call, float scale, int32_t i) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * call.width + i;
  float value = call.x[at];
  if (call.added_weight != nullptr) {
    const float own = call.added[at] + number_or_zero(call.bias, i);
    return fmaf(call.added_scale, own * scale * call.added_weight[i], value);
  }
  if (call.added != nullptr) value = fmaf(call.added_scale, call.added[at], value);
  if (call.bias != nullptr) value = fmaf(call.added_scale, call.bias[i], value);
  return value;
}

// A block for each row. A thread reads and writes the same columns in all loops.
__global__ void norm_each_row(NormCall call) {
  __shared__ float partial[kWarps], partial_of_added[kWarps];
  const float scale_before =
      call.added_weight == nullptr ? 1 : scale_of_added(call, partial_of_added);
  const int64_t begin = static_cast<int64_t>(blockIdx.x) * call.width;
  float* x = call.x + begin;
  float squares = 0;
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < call.width; i += kNormThreads) {
    const float value = added_up(call, scale_before, i);
    x[i] = value;
    squares = fmaf(value, value, squares);
  }
  const float mean = block_sum(squares, partial) / static_cast<float>(call.width);
  const float scale = 1 / sqrtf(mean + call.eps);
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < call.width; i += kNormThreads) {
    call.normed[begin + i] = x[i] * scale * call.weight[i];
  }
}

// Blocks along x for rows, along y for runs of columns.
__global__ void gate_each(GateCall call) {
  const int32_t i = static_cast<int32_t>(blockIdx.y) * kThreads + static_cast<int32_t>(threadIdx.x);
  if (i >= call.width) return;
  const int64_t at = static_cast<int64_t>(blockIdx.x) * call.width + i;
  const float gate = call.gate[at] + number_or_zero(call.gate_bias, i);
  const float up = call.up[at] + number_or_zero(call.up_bias, i);
  call.gate[at] = gated(gate, up, call.gating);
}

}  // namespace

void add_and_norm(const NormCall& call) {
  if (call.rows == 0) return;
  launch(norm_each_row, dim3(static_cast<unsigned>(call.rows)), kNormThreads, call);
}

void apply_gate(const GateCall& call) {
  if (call.rows == 0) return;
  launch(gate_each, dim3(static_cast<unsigned>(call.rows), blocks_of(call.width, kThreads)),
         kThreads, call);
}

}  // namespace weft::cuda
