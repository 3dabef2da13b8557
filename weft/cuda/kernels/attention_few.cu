#include <algorithm>

#include "weft/cuda/kernels/attention_parts.h"
#include "weft/cuda/kernels/launch.h"
#include "weft/cuda/kernels/warp.h"

namespace weft::cuda {
namespace {

constexpr int kWarps = 4, kThreads = kWarps * kLanes;
// Positions that a warp reads at a time, so that it waits for memory once for all of them.
constexpr int kAtOnce = 4;
// A row's positions are cut into at most so many parts, of so many positions or that times a power
// of two. It depends on nothing but the row's own positions, so that its bits don't, either.
constexpr int32_t kMostParts = 128, kSmallestPart = 64;

int32_t parts_of(const AttentionCall& call) {
  const int32_t most = call.window == 0 ? call.capacity : std::min(call.window, call.capacity);
  return std::min<int32_t>(kMostParts, static_cast<int32_t>(blocks_of(most, kSmallestPart)));
}

__device__ int32_t part_size(const Seen& seen) {
  int32_t size = kSmallestPart;
  while (seen.end - seen.begin > size * kMostParts) size *= 2;
  return size;
}

struct PartsCall {
  AttentionCall attention;
  // For as many positions as the cache has room for.
  int32_t parts;
};

// Where a part's sums lie in scratch memory: its `head_dim` outputs; the largest score and the
// total of all parts lie behind all outputs.
struct Place {
  float* out;
  float* largest;
  float* total;
};
__device__ Place place_of(const PartsCall& call, int32_t row, int32_t head, int32_t part) {
  const AttentionCall& own = call.attention;
  const int64_t all = static_cast<int64_t>(own.rows) * own.heads * call.parts;
  const int64_t index = (static_cast<int64_t>(row) * own.heads + head) * call.parts + part;
  float* pairs = own.scratch + all * own.head_dim + 2 * index;
  return {own.scratch + index * own.head_dim, pairs, pairs + 1};
}

// What a warp, or all of a block, have of a softmax over some positions: the largest score, and
// sums of exp(score - largest), alone and times the values.
template <int kOwn>
struct Softmax {
  float largest = -INFINITY;
  float total = 0;
  float out[kOwn] = {};
};

// Adds positions; a score of -inf has no weight, but the first has one.
template <int kOwn>
__device__ void add_positions(Softmax<kOwn>& sums, const float (&scores)[kAtOnce],
                              const float (&v)[kAtOnce][kOwn]) {
  float largest = sums.largest;
  WEFT_UNROLL for (int i = 0; i < kAtOnce; ++i) largest = fmaxf(largest, scores[i]);
  const float shrink = expf(sums.largest - largest);
  sums.largest = largest;
  sums.total *= shrink;
  WEFT_UNROLL for (int j = 0; j < kOwn; ++j) sums.out[j] *= shrink;
  WEFT_UNROLL for (int i = 0; i < kAtOnce; ++i) {
    const float weight = expf(scores[i] - largest);
    sums.total += weight;
    WEFT_UNROLL for (int j = 0; j < kOwn; ++j) { sums.out[j] = fmaf(weight, v[i][j], sums.out[j]); }
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

// Heads of one row that share keys and values: `count` of them, whose queries lie side by side.
struct Heads {
  const float* q;
  const float* keys;
  const float* values;
  int32_t count, dim;
};

// Takes up every kWarps-th position from `first` on. Heads beyond the last are computed as that.
template <int kOwn, int kHeads>
__device__ void sweep(const AttentionCall& call, const Heads& heads, int32_t first, int32_t end,
                      Softmax<kOwn> (&sums)[kHeads]) {
  float q[kHeads][kOwn];
  WEFT_UNROLL for (int h = 0; h < kHeads; ++h) {
    read_own(heads.q + min(h, heads.count - 1) * heads.dim, heads.dim, q[h]);
  }
  WEFT_ROLL for (int32_t position = first; position < end; position += kAtOnce * kWarps) {
    float k[kAtOnce][kOwn], v[kAtOnce][kOwn];
    WEFT_UNROLL for (int i = 0; i < kAtOnce; ++i) {
      // What lies beyond the last is read as the last and left out.
      const int64_t at = static_cast<int64_t>(min(position + i * kWarps, end - 1)) * heads.dim;
      read_own(heads.keys + at, heads.dim, k[i]);
      read_own(heads.values + at, heads.dim, v[i]);
    }
    WEFT_UNROLL for (int h = 0; h < kHeads; ++h) {
      float scores[kAtOnce];
      WEFT_UNROLL for (int i = 0; i < kAtOnce; ++i) {
        float dot = 0;
        WEFT_UNROLL for (int j = 0; j < kOwn; ++j) dot = fmaf(q[h][j], k[i][j], dot);
        scores[i] = capped(call, warp_sum(dot));
        if (position + i * kWarps >= end) scores[i] = -INFINITY;
      }
      add_positions(sums[h], scores, v);
    }
  }
}

// The warps' sums of some heads.
template <int kOwn, int kHeads>
struct Shared {
  static constexpr int kDim = kOwn * kLanes;
  float largest[kWarps][kHeads], total[kWarps][kHeads], out[kWarps][kHeads][kDim];
};

template <int kOwn, int kHeads>
__device__ void share(const Softmax<kOwn> (&sums)[kHeads], Shared<kOwn, kHeads>& shared) {
  const int warp = static_cast<int>(threadIdx.x) / kLanes;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  WEFT_UNROLL for (int h = 0; h < kHeads; ++h) {
    if (lane == 0) {
      shared.largest[warp][h] = sums[h].largest;
      shared.total[warp][h] = sums[h].total;
    }
    WEFT_UNROLL for (int j = 0; j < kOwn; ++j) {
      shared.out[warp][h][lane + j * kLanes] = sums[h].out[j];
    }
  }
}

// Element i of a head of all warps, with the largest score and the total.
template <int kOwn, int kHeads>
__device__ Softmax<1> gather(const Shared<kOwn, kHeads>& shared, int head, int i) {
  Softmax<1> all;
  WEFT_UNROLL for (int warp = 0; warp < kWarps; ++warp) {
    all.largest = fmaxf(all.largest, shared.largest[warp][head]);
  }
  WEFT_UNROLL for (int warp = 0; warp < kWarps; ++warp) {
    const float weight = expf(shared.largest[warp][head] - all.largest);
    all.total = fmaf(shared.total[warp][head], weight, all.total);
    all.out[0] = fmaf(shared.out[warp][head][i], weight, all.out[0]);
  }
  return all;
}

// A run of heads of a row that share keys and values, over some positions.
template <int kOwn, int kHeads>
__device__ void attend_heads(const PartsCall& parts, int32_t head, int32_t count, int32_t part,
                             const Seen& seen) {
  __shared__ Shared<kOwn, kHeads> shared;
  const AttentionCall& call = parts.attention;
  const int32_t row = static_cast<int32_t>(blockIdx.x) / parts.parts;
  const int64_t cached =
      (static_cast<int64_t>(row / call.tokens) * call.kv_heads + call.kv_of_head[head]) *
      call.capacity * call.head_dim;
  const int64_t own = (static_cast<int64_t>(row) * call.heads + head) * call.head_dim;
  const Heads heads = {call.q + own, call.keys + cached, call.values + cached, count,
                       call.head_dim};
  Softmax<kOwn> sums[kHeads];
  sweep(call, heads, seen.begin + static_cast<int32_t>(threadIdx.x) / kLanes, seen.end, sums);
  share(sums, shared);
  __syncthreads();
  constexpr int kDim = Shared<kOwn, kHeads>::kDim;
  for (int index = static_cast<int>(threadIdx.x); index < count * kDim; index += kThreads) {
    const int h = index / kDim, i = index % kDim;
    if (i >= call.head_dim) continue;
    const Softmax<1> all = gather(shared, h, i);
    if (parts.parts == 1) {
      call.out[own + h * call.head_dim + i] =
          all.out[0] / total_with_sink(call, head + h, all.largest, all.total);
      continue;
    }
    const Place place = place_of(parts, row, head + h, part);
    place.out[i] = all.out[0];
    if (i == 0) {
      *place.largest = all.largest;
      *place.total = all.total;
    }
  }
}

// Blocks along x for the parts of each row's positions, along y for runs of kHeads heads.
template <int kOwn, int kHeads>
__global__ void __launch_bounds__(kThreads, 1) attend_part(PartsCall parts) {
  const AttentionCall& call = parts.attention;
  const int32_t row = static_cast<int32_t>(blockIdx.x) / parts.parts;
  const int32_t part = static_cast<int32_t>(blockIdx.x) % parts.parts;
  const Seen all = seen_by(call, row);
  const int32_t size = part_size(all), begin = all.begin + part * size;
  const Seen seen = {begin, min(begin + size, all.end)};
  if (seen.begin >= seen.end) return;
  const int32_t last = min((static_cast<int32_t>(blockIdx.y) + 1) * kHeads, call.heads);
  for (int32_t head = static_cast<int32_t>(blockIdx.y) * kHeads, count = 0; head < last;
       head += count) {
    count = 1;
    while (head + count < last && call.kv_of_head[head + count] == call.kv_of_head[head]) ++count;
    attend_heads<kOwn, kHeads>(parts, head, count, part, seen);
    // Their sums are read before others take their place.
    if (head + count < last) __syncthreads();
  }
}

// The largest of a block's values and their sum, each on all of its threads.
constexpr int kJoinThreads = kMostParts, kJoinWarps = kJoinThreads / kLanes;
template <class Join>
__device__ float join_all(float own, float (&shared)[kJoinWarps], const Join& join) {
  for (int step = kLanes / 2; step > 0; step /= 2) {
    own = join(own, __shfl_xor_sync(kAllLanes, own, step));
  }
  if (threadIdx.x % kLanes == 0) shared[threadIdx.x / kLanes] = own;
  __syncthreads();
  own = shared[0];
  for (int warp = 1; warp < kJoinWarps; ++warp) own = join(own, shared[warp]);
  return own;
}

// Blocks along x for rows, along y for heads: a thread for each part, then for each element.
__global__ void __launch_bounds__(kJoinThreads) join_parts(PartsCall parts) {
  __shared__ float largest[kJoinWarps], total[kJoinWarps], weights[kMostParts];
  const AttentionCall& call = parts.attention;
  const int32_t row = static_cast<int32_t>(blockIdx.x), head = static_cast<int32_t>(blockIdx.y);
  const int32_t thread = static_cast<int32_t>(threadIdx.x);
  const Seen seen = seen_by(call, row);
  const int32_t size = part_size(seen), count = (seen.end - seen.begin + size - 1) / size;
  const Place own = place_of(parts, row, head, min(thread, count - 1));
  const float score = thread < count ? *own.largest : -INFINITY;
  const float most = join_all(score, largest, [](float a, float b) { return fmaxf(a, b); });
  weights[thread] = expf(score - most);
  const float share = thread < count ? *own.total * weights[thread] : 0.F;
  const float whole = total_with_sink(
      call, head, most, join_all(share, total, [](float a, float b) { return a + b; }));
  const float* from = place_of(parts, row, head, 0).out;
  float* to = call.out + (static_cast<int64_t>(row) * call.heads + head) * call.head_dim;
  for (int32_t i = thread; i < call.head_dim; i += kJoinThreads) {
    float sum = 0;
    for (int32_t part = 0; part < count; ++part) {
      sum = fmaf(from[static_cast<int64_t>(part) * call.head_dim + i], weights[part], sum);
    }
    to[i] = sum / whole;
  }
}

template <int kOwn, int kHeads>
void launch_parts(const PartsCall& call) {
  const AttentionCall& own = call.attention;
  launch(attend_part<kOwn, kHeads>,
         dim3(static_cast<unsigned>(own.rows * call.parts), blocks_of(own.heads, kHeads)), kThreads,
         call);
}

// As many heads as may share keys and values.
template <int kOwn>
void launch_parts(const PartsCall& call) {
  const int32_t sharing = call.attention.heads / call.attention.kv_heads;
  if (sharing >= 3) return launch_parts<kOwn, 4>(call);
  if (sharing == 2) return launch_parts<kOwn, 2>(call);
  launch_parts<kOwn, 1>(call);
}

}  // namespace

int64_t attention_scratch(const AttentionCall& call) {
  const int32_t parts = call.tokens > kFewTokens ? 1 : parts_of(call);
  if (parts == 1) return 0;
  return static_cast<int64_t>(call.rows) * call.heads * parts * (call.head_dim + 2);
}

void attend_few(const AttentionCall& attention) {
  const PartsCall call = {attention, parts_of(attention)};
  if (attention.head_dim <= 2 * kLanes) {
    launch_parts<2>(call);
  } else if (attention.head_dim <= 4 * kLanes) {
    launch_parts<4>(call);
  } else {
    launch_parts<8>(call);
  }
  if (call.parts == 1) return;
  launch(join_parts,
         dim3(static_cast<unsigned>(attention.rows), static_cast<unsigned>(attention.heads)),
         kJoinThreads, call);
}

}  // namespace weft::cuda
