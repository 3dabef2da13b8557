#include "weft/cuda/kernels/attention.h"
#include "weft/cuda/kernels/attention_parts.h"
#include "weft/cuda/kernels/launch.h"
#include "weft/cuda/kernels/warp.h"

namespace weft::cuda {
namespace {

constexpr int kWarps = 8;

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
    return {q,           call.q_bias == nullptr ? nullptr : call.q_bias + index * size,
            call.q_norm, q,
            call.scale,  true};
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
    x[i] = head.from[i] + (head.bias == nullptr ? 0.F : head.bias[i]);
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
    head.to[i] = turned(x, call.cos + angles, call.sin + angles, dim, i) * head.scale;
  }
}

// What a warp, or all of a block, have of a softmax over some positions: the largest score, and
// sums of exp(score - largest), alone and times the values.
template <int kOwn>
struct Softmax {
  float largest = -INFINITY;
  float total = 0;
  float out[kOwn] = {};
};

// Positions that a warp reads at a time, so that it waits for memory once for all of them.
constexpr int kAtOnce = 4;

// Adds `weight` and its share of a position's values; sums are of exp(score - largest).
template <int kOwn>
__device__ void add_position(Softmax<kOwn>& sums, float score, const float (&v)[kOwn]) {
  const float largest = fmaxf(sums.largest, score);
  const float shrink = expf(sums.largest - largest), weight = expf(score - largest);
  sums.largest = largest;
  sums.total = fmaf(sums.total, shrink, weight);
  WEFT_UNROLL for (int j = 0; j < kOwn; ++j) {
    sums.out[j] = fmaf(sums.out[j], shrink, weight * v[j]);
  }
}

// A lane's elements lane, lane + kLanes … of a head.
template <int kOwn>
__device__ void read_own(const float* head, int32_t dim, float (&own)[kOwn]) {
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % kLanes;
  WEFT_UNROLL for (int j = 0; j < kOwn; ++j) {
    own[j] = lane + j * kLanes < dim ? head[lane + j * kLanes] : 0.F;
  }
}

// Takes up every kWarps-th position from `first` on.
template <int kOwn>
__device__ Softmax<kOwn> sweep(const float* q, const float* keys, const float* values, int32_t dim,
                               int32_t first, int32_t end) {
  float own_q[kOwn];
  read_own(q, dim, own_q);
  Softmax<kOwn> sums;
  for (int32_t position = first; position < end; position += kAtOnce * kWarps) {
    float k[kAtOnce][kOwn], v[kAtOnce][kOwn], scores[kAtOnce];
    WEFT_UNROLL for (int i = 0; i < kAtOnce; ++i) {
      // What lies beyond the last is read as the last and left out.
      const int64_t at = static_cast<int64_t>(min(position + i * kWarps, end - 1)) * dim;
      read_own(keys + at, dim, k[i]);
      read_own(values + at, dim, v[i]);
    }
    WEFT_UNROLL for (int i = 0; i < kAtOnce; ++i) {
      float dot = 0;
      WEFT_UNROLL for (int j = 0; j < kOwn; ++j) dot = fmaf(own_q[j], k[i][j], dot);
      scores[i] = warp_sum(dot);
    }
    WEFT_UNROLL for (int i = 0; i < kAtOnce; ++i) {
      if (position + i * kWarps < end) add_position(sums, scores[i], v[i]);
    }
  }
  return sums;
}

// Blocks along x for rows, along y for heads: the warps share the positions.
template <int kOwn>
__global__ void attend_each(AttentionCall call) {
  __shared__ float largest[kWarps], total[kWarps], out[kWarps][kOwn * kLanes];
  const int32_t row = static_cast<int32_t>(blockIdx.x), head = static_cast<int32_t>(blockIdx.y);
  const int32_t warp = static_cast<int32_t>(threadIdx.x) / kLanes;
  const int32_t lane = static_cast<int32_t>(threadIdx.x) % kLanes;
  const int64_t sequence = row / call.tokens;
  const int32_t end = *call.start + row % call.tokens + 1;
  const int32_t begin = call.window == 0 ? 0 : max(0, end - call.window);
  const int64_t cached =
      (sequence * call.kv_heads + call.kv_of_head[head]) * call.capacity * call.head_dim;
  const int64_t own = (static_cast<int64_t>(row) * call.heads + head) * call.head_dim;
  const auto sums = sweep<kOwn>(call.q + own, call.keys + cached, call.values + cached,
                                call.head_dim, begin + warp, end);
  if (lane == 0) {
    largest[warp] = sums.largest;
    total[warp] = sums.total;
  }
  for (int j = 0; j < kOwn; ++j) out[warp][lane + j * kLanes] = sums.out[j];
  __syncthreads();
  float most = largest[0], whole = 0, weights[kWarps];
  for (int other = 1; other < kWarps; ++other) most = fmaxf(most, largest[other]);
  for (int other = 0; other < kWarps; ++other) {
    weights[other] = expf(largest[other] - most);
    whole = fmaf(total[other], weights[other], whole);
  }
  for (int32_t i = static_cast<int32_t>(threadIdx.x); i < call.head_dim;
       i += static_cast<int32_t>(blockDim.x)) {
    float sum = 0;
    for (int other = 0; other < kWarps; ++other) sum = fmaf(out[other][i], weights[other], sum);
    call.out[own + i] = sum / whole;
  }
}

}  // namespace

void attend(const AttentionCall& call) {
  if (call.rows == 0) return;
  const auto rows = static_cast<unsigned>(call.rows);
  launch(take_heads, dim3(rows, static_cast<unsigned>(call.heads + 2 * call.kv_heads)), kLanes,
         call);
  if (call.tokens <= kFewTokens) return attend_few(call);
  const dim3 blocks(rows, static_cast<unsigned>(call.heads));
  constexpr unsigned kThreads = kWarps * kLanes;
  if (call.head_dim <= 2 * kLanes) {
    launch(attend_each<2>, blocks, kThreads, call);
  } else if (call.head_dim <= 4 * kLanes) {
    launch(attend_each<4>, blocks, kThreads, call);
  } else {
    launch(attend_each<8>, blocks, kThreads, call);
  }
}

}  // namespace weft::cuda
