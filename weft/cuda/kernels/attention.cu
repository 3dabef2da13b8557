#include "weft/cuda/kernels/attention.h"
#include "weft/cuda/kernels/attention_parts.h"
#include "weft/cuda/kernels/launch.h"
#include "weft/cuda/kernels/warp.h"

namespace weft::cuda {
namespace {

// One head of one row on its way from a product to attention.
struct Head {
  const float* from;
  const float* bias;
  const float* norm;
  float* to;
  float scale;
  bool is_turned;
};

__device__ float* cached_at(const AttentionCall& call, float* cache, int32_t row, int32_t kv) {
  const int64_t sequence = row / call.tokens, position = *call.start + row % call.tokens;
  return cache + ((sequence * call.kv_heads + kv) * call.capacity + position) * call.head_dim;
}

// Number `index` of a row's query heads, then its key heads, then its value heads.
__device__ Head head_of(const AttentionCall& call, int32_t row, int32_t index) {
  const int32_t size = call.head_dim;
  if (index < call.heads) {
    float* q = call.q + (static_cast<int64_t>(row) * call.heads + index) * size;
    const float factor = call.query_factors == nullptr ? 1 : call.query_factors[row % call.tokens];
    return {q,
            call.q_bias == nullptr ? nullptr : call.q_bias + index * size,
            call.q_norm,
            q,
            call.scale * factor,
            true};
  }
  const int32_t kv = (index - call.heads) % call.kv_heads;
  const int64_t from = (static_cast<int64_t>(row) * call.kv_heads + kv) * size;
  if (index < call.heads + call.kv_heads) {
    return {call.k + from,
            call.k_bias == nullptr ? nullptr : call.k_bias + kv * size,
            call.k_norm,
            cached_at(call, call.keys, row, kv),
            1,
            true};
  }
  return {call.v + from,
          call.v_bias == nullptr ? nullptr : call.v_bias + kv * size,
          nullptr,
          cached_at(call, call.values, row, kv),
          1,
          false};
}

// A warp, which is a block, for each head of each row: blocks along x for rows, along y for heads.
__global__ void take_heads(AttentionCall call) {
  __shared__ float x[kMostHeadDim];
  const int32_t row = static_cast<int32_t>(blockIdx.x), lane = static_cast<int32_t>(threadIdx.x);
  const Head head = head_of(call, row, static_cast<int32_t>(blockIdx.y));
  float squares = 0;
  for (int32_t i = lane; i < call.head_dim; i += kLanes) {
    x[i] = head.from[i] + number_or_zero(head.bias, i);
    squares = fmaf(x[i], x[i], squares);
  }
  const float mean = warp_sum(squares) / static_cast<float>(call.head_dim);
  if (head.norm != nullptr) {
    const float scale = 1 / sqrtf(mean + call.eps);
    for (int32_t i = lane; i < call.head_dim; i += kLanes) x[i] *= scale * head.norm[i];
  }
  __syncwarp();
  const int64_t angles = static_cast<int64_t>(row % call.tokens) * call.turned_dim;
  const int32_t dim = head.is_turned ? call.turned_dim : 0;
  for (int32_t i = lane; i < call.head_dim; i += kLanes) {
    const float* cos = call.cos + angles;
    const float* sin = call.sin + angles;
    const float own =
        call.turns_neighbours ? turned_beside(x, cos, sin, dim, i) : turned(x, cos, sin, dim, i);
    head.to[i] = own * head.scale;
  }
}

}  // namespace

void attend(const AttentionCall& call) {
  if (call.rows == 0) return;
  const auto rows = static_cast<unsigned>(call.rows);
  launch(take_heads, dim3(rows, static_cast<unsigned>(call.heads + 2 * call.kv_heads)), kLanes,
         call);
  if (call.tokens <= kFewTokens) return attend_few(call);
  attend_many(call);
}

}  // namespace weft::cuda
