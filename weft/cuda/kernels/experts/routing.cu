#include "weft/cuda/kernels/experts/routing.h"
#include "weft/cuda/kernels/launch.h"
#include "weft/cuda/kernels/warp.h"

namespace weft::cuda {
namespace {

// Each routes a row.
constexpr int kWarps = 4;
constexpr int kGroupThreads = 1024;
static_assert(kGroupThreads >= kMostExperts);

// Numbers in their order with what is no number below all, and of equal ones the first above the
// others: never 0, and never the same for two indices.
__device__ uint64_t key_of(float number, int32_t index) {
  uint32_t order = 1;
  if (number == number) {
    const float zeros_alike = number + 0.F;
    uint32_t bits;
    __builtin_memcpy(&bits, &zeros_alike, sizeof(bits));
    order = (bits & 0x80000000U) == 0 ? bits | 0x80000000U : ~bits;
  }
  return uint64_t{order} << 32 | ~static_cast<uint32_t>(index);
}

__device__ int32_t index_of(uint64_t key) {
  return static_cast<int32_t>(~static_cast<uint32_t>(key));
}

// The largest of all lanes' values, on each; of floats what is a number.
__device__ float warp_max(float value) {
  for (int step = kLanes / 2; step > 0; step /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, step));
  }
  return value;
}
__device__ uint64_t warp_max(uint64_t value) {
  for (int step = kLanes / 2; step > 0; step /= 2) {
    const uint64_t other = __shfl_xor_sync(kAllLanes, value, step);
    value = other > value ? other : value;
  }
  return value;
}

__device__ float sigmoid(float x) { return 1 / (1 + expf(-x)); }

__device__ int32_t lane_of_thread() { return static_cast<int32_t>(threadIdx.x) % kLanes; }

// Turns a row's logits into scores, and into what experts are chosen by. A lane has every 32nd
// expert, in all loops.
__device__ void score_row(const RoutingCall& call, float* logits, float* scores) {
  const int32_t lane = lane_of_thread();
  float most = -INFINITY;
  for (int32_t i = lane; i < call.num_experts; i += kLanes) {
    if (call.router_bias != nullptr) logits[i] += call.router_bias[i];
    most = fmaxf(most, logits[i]);
  }
  most = warp_max(most);
  float sum = 0;
  for (int32_t i = lane; i < call.num_experts; i += kLanes) {
    scores[i] = call.has_sigmoids ? sigmoid(logits[i]) : expf(logits[i] - most);
    sum += scores[i];
  }
  const float divisor = call.has_sigmoids ? 1.F : warp_sum(sum);
  // Logits tell apart what scores may round to the same.
  const bool by_logits = !call.has_sigmoids && call.choice_bias == nullptr && call.num_groups == 1;
  for (int32_t i = lane; i < call.num_experts; i += kLanes) {
    scores[i] /= divisor;
    if (!by_logits) logits[i] = scores[i] + number_or_zero(call.choice_bias, i);
  }
}

// The key of the largest of `count` numbers from `first` on, of those below `limit`.
__device__ uint64_t next_key(const float* numbers, int32_t first, int32_t count, int32_t step,
                             uint64_t limit) {
  uint64_t best = 0;
  for (int32_t i = first; i < count; i += step) {
    const uint64_t key = key_of(numbers[i], i);
    if (key < limit && key > best) best = key;
  }
  return best;
}

// The sum of a group's best.
__device__ float sum_of_best(const float* group, int32_t size, int32_t count) {
  float sum = 0;
  uint64_t key = ~uint64_t{0};
  for (int32_t i = 0; i < min(count, size); ++i) {
    key = next_key(group, 0, size, 1, key);
    sum += group[index_of(key)];
  }
  return sum;
}

// What experts of groups that are not among the best are chosen by becomes 0. A lane has every 32nd
// group; a group's rank tells whether it is taken.
__device__ void leave_out_groups(const RoutingCall& call, float* choice) {
  __shared__ float sums[kWarps][kMostExperts];
  float* const own = sums[threadIdx.x / kLanes];
  const int32_t size = call.num_experts / call.num_groups;
  __syncwarp();
  for (int32_t group = lane_of_thread(); group < call.num_groups; group += kLanes) {
    own[group] = sum_of_best(choice + group * size, size, call.best_of_group);
  }
  __syncwarp();
  for (int32_t group = lane_of_thread(); group < call.num_groups; group += kLanes) {
    const uint64_t key = key_of(own[group], group);
    int32_t above = 0;
    for (int32_t other = 0; other < call.num_groups; ++other) {
      above += key_of(own[other], other) > key ? 1 : 0;
    }
    if (above < call.groups_per_token) continue;
    for (int32_t i = 0; i < size; ++i) choice[group * size + i] = 0;
  }
  __syncwarp();
}

// The row's experts, first by falling choice, then, by their ranks, ascending.
__device__ void choose(const RoutingCall& call, const float* choice, int32_t* by_choice,
                       int32_t* chosen) {
  const int32_t lane = lane_of_thread();
  uint64_t key = ~uint64_t{0};
  for (int32_t i = 0; i < call.top_k; ++i) {
    key = warp_max(next_key(choice, lane, call.num_experts, kLanes, key));
    if (lane == 0) by_choice[i] = index_of(key);
  }
  __syncwarp();
  for (int32_t i = lane; i < call.top_k; i += kLanes) {
    int32_t below = 0;
    for (int32_t other = 0; other < call.top_k; ++other) {
      below += by_choice[other] < by_choice[i] ? 1 : 0;
    }
    chosen[below] = by_choice[i];
  }
  __syncwarp();
}

__device__ void weigh(const RoutingCall& call, const float* scores, const int32_t* chosen,
                      float* weights) {
  float sum = call.has_sigmoids ? 1e-20F : 0.F;
  for (int32_t i = 0; i < call.top_k; ++i) sum += scores[chosen[i]];
  const float divisor = call.normalizes ? sum : 1.F;
  for (int32_t i = lane_of_thread(); i < call.top_k; i += kLanes) {
    const float factor = call.factors == nullptr ? 1.F : call.factors[chosen[i]];
    weights[i] = scores[chosen[i]] / divisor * call.scale * factor;
  }
}

// Where pairs are not grouped: slots and tiles have the numbers of pairs.
__device__ void place_pairs(const RoutingCall& call, int32_t row, const int32_t* chosen) {
  for (int32_t i = lane_of_thread(); i < call.top_k; i += kLanes) {
    const int32_t pair = row * call.top_k + i, place = call.places[chosen[i]];
    call.slots[pair] = place < 0 ? -1 : pair;
    call.row_of_slot[pair] = row;
    call.tiles[pair] = {place, pair, place < 0 ? 0 : 1};
  }
}

// A warp for each row.
__global__ void route_rows(RoutingCall call) {
  __shared__ int32_t by_choice[kWarps][kMostExperts];
  const int32_t warp = static_cast<int32_t>(threadIdx.x) / kLanes;
  const int32_t row = static_cast<int32_t>(blockIdx.x) * kWarps + warp;
  if (row >= call.rows) return;
  float* const logits = call.logits + static_cast<int64_t>(row) * call.num_experts;
  float* const scores = call.scores + static_cast<int64_t>(row) * call.num_experts;
  int32_t* const chosen = call.chosen + static_cast<int64_t>(row) * call.top_k;
  score_row(call, logits, scores);
  if (call.num_groups > 1) leave_out_groups(call, logits);
  choose(call, logits, by_choice[warp], chosen);
  weigh(call, scores, chosen, call.weights + static_cast<int64_t>(row) * call.top_k);
  if (call.tile_rows == 1) place_pairs(call, row, chosen);
}

// Each thread's number becomes the sum of it and all before it. All threads of the block call it.
__device__ void sum_up_before(int32_t (&numbers)[kGroupThreads]) {
  const int32_t thread = static_cast<int32_t>(threadIdx.x);
  for (int32_t step = 1; step < kGroupThreads; step *= 2) {
    __syncthreads();
    const int32_t other = thread >= step ? numbers[thread - step] : 0;
    __syncthreads();
    numbers[thread] += other;
  }
  __syncthreads();
}

__device__ int32_t place_of(const RoutingCall& call, int32_t pair) {
  return call.places[call.chosen[pair]];
}

// Cuts the slots of each held expert, which are `count` up to `end`, into tiles.
__device__ void write_tiles(const RoutingCall& call, int32_t count, int32_t end, int32_t tile_end) {
  const int32_t thread = static_cast<int32_t>(threadIdx.x);
  int32_t tile = tile_end - (count + call.tile_rows - 1) / call.tile_rows;
  for (int32_t first = end - count; first < end; first += call.tile_rows) {
    call.tiles[tile++] = {thread, first, min(call.tile_rows, end - first)};
  }
}

// One block: counts each expert's pairs, then gives them slots. The order of an expert's rows may
// differ from run to run; what they give does not depend on it.
__global__ void group_pairs(RoutingCall call) {
  __shared__ int32_t counts[kGroupThreads], ends[kGroupThreads], tile_ends[kGroupThreads];
  const int32_t thread = static_cast<int32_t>(threadIdx.x), pairs = call.num_pairs();
  counts[thread] = 0;
  __syncthreads();
  for (int32_t pair = thread; pair < pairs; pair += kGroupThreads) {
    const int32_t place = place_of(call, pair);
    if (place >= 0) atomicAdd(&counts[place], 1);
  }
  __syncthreads();
  const int32_t count = counts[thread];
  ends[thread] = count;
  tile_ends[thread] = (count + call.tile_rows - 1) / call.tile_rows;
  sum_up_before(ends);
  sum_up_before(tile_ends);
  write_tiles(call, count, ends[thread], tile_ends[thread]);
  const int32_t used = tile_ends[kGroupThreads - 1];
  for (int32_t tile = used + thread; tile < call.num_tiles(); tile += kGroupThreads) {
    call.tiles[tile] = {0, 0, 0};
  }
  __syncthreads();
  ends[thread] -= count;
  __syncthreads();
  for (int32_t pair = thread; pair < pairs; pair += kGroupThreads) {
    const int32_t place = place_of(call, pair);
    const int32_t slot = place < 0 ? -1 : atomicAdd(&ends[place], 1);
    call.slots[pair] = slot;
    if (slot >= 0) call.row_of_slot[slot] = pair / call.top_k;
  }
}

}  // namespace

void route(const RoutingCall& call) {
  if (call.rows == 0) return;
  launch(route_rows, dim3(blocks_of(call.rows, kWarps)), kWarps * kLanes, call);
  if (call.tile_rows > 1) launch(group_pairs, dim3(1), kGroupThreads, call);
}

}  // namespace weft::cuda
