#include "weft/cuda/kernels/attention_parts.h"
#include "weft/cuda/kernels/launch.h"
#include "weft/cuda/kernels/mma.h"
#include "weft/cuda/kernels/warp.h"

namespace weft::cuda {
namespace {

// All warps of a block share kPositions keys and values of one head at a time, as sums of kParts
// bfloat16 numbers.
constexpr int kWarps = 4, kThreads = kWarps * kLanes;
constexpr int kPositions = 32, kParts = 2;

// A warp has the scores of 16 tokens and their sums over kOwnPieces pieces of the values, which are
// all but for large heads: those are shared by two warps with the same scores.
template <int kPieces>
inline constexpr int kOwnPieces = kPieces > 4 ? 4 : kPieces;
template <int kPieces>
inline constexpr int kSharing = kPieces / kOwnPieces<kPieces>;
template <int kPieces>
inline constexpr int kTokens = kWarps / kSharing<kPieces> * 16;

// Rows of heads in pieces of kUnitsOfTile units.
template <int kRows, int kPieces>
using Parts = HalfUnit[kParts][kPieces][kRows * kUnitsOfTile];

template <int kPieces>
struct Shared {
  Parts<kTokens<kPieces>, kPieces> q;
  Parts<kPositions, kPieces> k, v;
};

// Heads of `dim` numbers that lie `stride` numbers apart.
struct Source {
  const float* from;
  int64_t stride;
  int32_t rows, dim;
};

// Zeros beyond the head and beyond the last row.
__device__ void read_head(const Source& source, int32_t row, int32_t unit, float (&v)[kUnit]) {
  const float* from = source.from + row * source.stride + unit * kUnit;
  for (float& each : v) each = 0;
  if (row >= source.rows) return;
  if (source.dim % kUnit == 0) {
    if (unit * kUnit < source.dim) {
      read_unit<Dtype::kF32>(reinterpret_cast<const uint8_t*>(from), v);
    }
    return;
  }
  WEFT_UNROLL for (int i = 0; i < kUnit; ++i) {
    if (unit * kUnit + i < source.dim) v[i] = from[i];
  }
}

template <int kRows, int kPieces>
__device__ void bring_rows(const Source& source, Parts<kRows, kPieces>& to) {
  constexpr int kUnits = kPieces * kUnitsOfTile, kEach = kRows * kUnits / kThreads;
  constexpr int kAtOnce = kEach < 4 || kPieces > 4 ? 2 : 4;
  static_assert(kEach % kAtOnce == 0 && kEach * kThreads == kRows * kUnits);
  WEFT_ROLL for (int first = 0; first < kEach; first += kAtOnce) {
    float v[kAtOnce][kUnit];
    WEFT_UNROLL for (int i = 0; i < kAtOnce; ++i) {
      const int index = (first + i) * kThreads + static_cast<int>(threadIdx.x);
      read_head(source, index / kUnits, index % kUnits, v[i]);
    }
    WEFT_UNROLL for (int i = 0; i < kAtOnce; ++i) {
      const int index = (first + i) * kThreads + static_cast<int>(threadIdx.x);
      const int unit = index % kUnits;
      HalfUnit parts[kParts];
      split_unit(v[i], parts);
      WEFT_UNROLL for (int part = 0; part < kParts; ++part) {
        to[part][unit / kUnitsOfTile][place_in_tile(index / kUnits, unit % kUnitsOfTile)] =
            parts[part];
      }
    }
  }
}

// own[half] += a b^T of the parts' values; the product of both second parts is too small to count.
__device__ void add_parts(const Fragment (&a)[kParts], const Fragment (&b)[kParts], Sums& low,
                          Sums& high) {
  WEFT_UNROLL for (int of_a = kParts - 1; of_a >= 0; --of_a) {
    WEFT_UNROLL for (int of_b = kParts - 1 - of_a; of_b >= 0; --of_b) {
      low = multiply_add(a[of_a], b[of_b], 0, low);
      high = multiply_add(a[of_a], b[of_b], 1, high);
    }
  }
}

// A lane has two rows of its warp's 16: lane / 4 and that plus 8.
using Scores = Sums[kPositions / 8];
template <int kPieces>
struct Tokens {
  float largest[2] = {-INFINITY, -INFINITY};
  float total[2] = {};
  Sums out[kOwnPieces<kPieces> * kUnitsOfTile] = {};
};

template <int kPieces>
__device__ int first_piece() {
  return static_cast<int>(threadIdx.x) / kLanes % kSharing<kPieces> * kOwnPieces<kPieces>;
}

template <int kPieces>
__device__ void score(const Shared<kPieces>& shared, Scores& scores) {
  const int first = static_cast<int>(threadIdx.x) / kLanes / kSharing<kPieces> * 16;
  for (Sums& each : scores) each = {};
  WEFT_ROLL for (int piece = 0; piece < kPieces; ++piece) {
    WEFT_UNROLL for (int unit = 0; unit < kUnitsOfTile; unit += 2) {
      Fragment q[kParts];
      WEFT_UNROLL for (int part = 0; part < kParts; ++part) {
        q[part] = load_fragment(shared.q[part][piece], first, unit);
      }
      WEFT_UNROLL for (int j = 0; j < kPositions / 16; ++j) {
        Fragment k[kParts];
        WEFT_UNROLL for (int part = 0; part < kParts; ++part) {
          k[part] = load_fragment(shared.k[part][piece], j * 16, unit);
        }
        add_parts(q, k, scores[2 * j], scores[2 * j + 1]);
      }
    }
  }
}

// Scores become exp(score - largest), zero for what a row does not see: positions are counted from
// the first of the scores. `shrink` is what former sums are to be multiplied by.
template <int kPieces>
__device__ void weigh(const AttentionCall& call, const Seen (&seen)[2], Scores& scores,
                      Tokens<kPieces>& tokens, float (&shrink)[2]) {
  const int column = static_cast<int>(threadIdx.x) % 4 * 2;
  WEFT_UNROLL for (int r = 0; r < 2; ++r) {
    float largest = tokens.largest[r];
    WEFT_UNROLL for (int i = 0; i < kPositions / 4; ++i) {
      const int position = i / 2 * 8 + column + i % 2;
      float& own = scores[i / 2].x[2 * r + i % 2];
      const bool is_seen = position >= seen[r].begin && position < seen[r].end;
      own = is_seen ? capped(call, own) : -INFINITY;
      largest = fmaxf(largest, own);
    }
    largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, 2));
    // A row may have seen nothing yet.
    const float origin = largest == -INFINITY ? 0.F : largest;
    shrink[r] = expf(tokens.largest[r] - origin);
    tokens.largest[r] = largest;
    float total = 0;
    WEFT_UNROLL for (int i = 0; i < kPositions / 4; ++i) {
      float& own = scores[i / 2].x[2 * r + i % 2];
      own = expf(own - origin);
      total += own;
    }
    tokens.total[r] = fmaf(tokens.total[r], shrink[r], total);
  }
}

// Weights of 16 positions as the left matrix of a product.
__device__ void split_weights(const Sums& first, const Sums& second, Fragment (&parts)[kParts]) {
  float v[kUnit];
  WEFT_UNROLL for (int i = 0; i < 4; ++i) {
    v[i] = first.x[i];
    v[i + 4] = second.x[i];
  }
  HalfUnit split[kParts];
  split_unit(v, split);
  WEFT_UNROLL for (int part = 0; part < kParts; ++part) {
    WEFT_UNROLL for (int i = 0; i < 4; ++i) parts[part].words[i] = split[part].pairs[i];
  }
}

template <int kPieces>
__device__ void add_values(const Shared<kPieces>& shared, const Scores& weights,
                           const float (&shrink)[2], Tokens<kPieces>& tokens) {
  const auto* values = &shared.v[0][first_piece<kPieces>()];
  Fragment left[kPositions / 16][kParts];
  WEFT_UNROLL for (int k = 0; k < kPositions / 16; ++k) {
    split_weights(weights[2 * k], weights[2 * k + 1], left[k]);
  }
  WEFT_UNROLL for (int unit = 0; unit < kOwnPieces<kPieces> * kUnitsOfTile; unit += 2) {
    Sums own[2] = {};
    WEFT_UNROLL for (int k = 0; k < kPositions / 16; ++k) {
      Fragment v[kParts];
      WEFT_UNROLL for (int part = 0; part < kParts; ++part) {
        v[part] = load_transposed(values[part * kPieces + unit / kUnitsOfTile], k * 16,
                                  unit % kUnitsOfTile);
      }
      add_parts(left[k], v, own[0], own[1]);
    }
    WEFT_UNROLL for (int half = 0; half < 2; ++half) {
      WEFT_UNROLL for (int i = 0; i < 4; ++i) {
        float& out = tokens.out[unit + half].x[i];
        out = fmaf(out, shrink[i / 2], own[half].x[i]);
      }
    }
  }
}

// The tokens of a block: `count` of one sequence from row `row` of the pass on.
struct Run {
  int32_t row, count, head;
};

template <int kPieces>
__device__ void write_tokens(const AttentionCall& call, const Run& run,
                             const Tokens<kPieces>& tokens) {
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kLanes;
  WEFT_UNROLL for (int r = 0; r < 2; ++r) {
    float total = tokens.total[r];
    total += __shfl_xor_sync(kAllLanes, total, 1);
    total += __shfl_xor_sync(kAllLanes, total, 2);
    const int32_t token = thread / kLanes / kSharing<kPieces> * 16 + lane / 4 + r * 8;
    if (token >= run.count) continue;
    total = total_with_sink(call, run.head, tokens.largest[r], total);
    float* to =
        call.out + (static_cast<int64_t>(run.row + token) * call.heads + run.head) * call.head_dim;
    const int32_t first = first_piece<kPieces>() * kUnitsOfTile * kUnit;
    WEFT_UNROLL for (int i = 0; i < kOwnPieces<kPieces> * kUnitsOfTile * 2; ++i) {
      const int32_t element = first + i / 2 * kUnit + lane % 4 * 2 + i % 2;
      if (element < call.head_dim) to[element] = tokens.out[i / 2].x[2 * r + i % 2] / total;
    }
  }
}

// Blocks along x for runs of tokens of each sequence, those that see most first, along y
// for heads.
template <int kPieces>
__global__ void __launch_bounds__(kThreads, kPieces == 2 ? 3 : 2) attend_run(AttentionCall call) {
  Shared<kPieces>& shared = launched_memory<Shared<kPieces>>();
  constexpr int32_t kMost = kTokens<kPieces>;
  const int32_t runs = (call.tokens + kMost - 1) / kMost;
  const int32_t sequence = static_cast<int32_t>(blockIdx.x) % (call.rows / call.tokens);
  const int32_t index = runs - 1 - static_cast<int32_t>(blockIdx.x) / (call.rows / call.tokens);
  const Run run = {sequence * call.tokens + index * kMost, min(kMost, call.tokens - index * kMost),
                   static_cast<int32_t>(blockIdx.y)};
  const int64_t in_row = static_cast<int64_t>(call.heads) * call.head_dim;
  bring_rows<kMost, kPieces>(
      {call.q + run.row * in_row + run.head * call.head_dim, in_row, run.count, call.head_dim},
      shared.q);
  const int32_t begin = seen_by(call, run.row).begin;
  const int32_t end = seen_by(call, run.row + run.count - 1).end;
  const int32_t own = static_cast<int32_t>(threadIdx.x) / kLanes / kSharing<kPieces> * 16 +
                      static_cast<int32_t>(threadIdx.x) % kLanes / 4;
  // Tokens beyond the last are computed and not written.
  const Seen seen[2] = {seen_by(call, run.row + min(own, run.count - 1)),
                        seen_by(call, run.row + min(own + 8, run.count - 1))};
  const int64_t cached =
      (static_cast<int64_t>(sequence) * call.kv_heads + call.kv_of_head[run.head]) * call.capacity *
      call.head_dim;
  Tokens<kPieces> tokens;
  for (int32_t first = begin; first < end; first += kPositions) {
    const int64_t at = cached + static_cast<int64_t>(first) * call.head_dim;
    bring_rows<kPositions, kPieces>({call.keys + at, call.head_dim, end - first, call.head_dim},
                                    shared.k);
    bring_rows<kPositions, kPieces>({call.values + at, call.head_dim, end - first, call.head_dim},
                                    shared.v);
    __syncthreads();
    Scores scores;
    score(shared, scores);
    const Seen counted[2] = {{seen[0].begin - first, seen[0].end - first},
                             {seen[1].begin - first, seen[1].end - first}};
    float shrink[2];
    weigh(call, counted, scores, tokens, shrink);
    add_values(shared, scores, shrink, tokens);
    __syncthreads();
  }
  write_tokens(call, run, tokens);
}

template <int kPieces>
void launch_runs(const AttentionCall& call) {
  const unsigned runs = blocks_of(call.tokens, kTokens<kPieces>);
  launch(attend_run<kPieces>,
         dim3(runs * static_cast<unsigned>(call.rows / call.tokens),
              static_cast<unsigned>(call.heads)),
         kThreads, call, sizeof(Shared<kPieces>));
}

}  // namespace

void attend_many(const AttentionCall& call) {
  if (call.head_dim <= 64) return launch_runs<2>(call);
  if (call.head_dim <= 128) return launch_runs<4>(call);
  launch_runs<8>(call);
}

}  // namespace weft::cuda
