#pragma once

#include <cstdint>

/// The inner loops of layers, one table row per instruction set. Kernel files are compiled for
/// machines that may not run them, so they use nothing that the linker could share with other
/// files: no standard containers, and no inline functions but templates on a type of their own.
namespace weft::nn::kernels {

/// Rows and columns of a tile of attention scores.
inline constexpr int64_t kTile = 64;

/// Causal attention of one query head over one sequence, in float32. H is the head dim, padded with
/// zeros to a multiple of 16. Scores are those of the scaled queries.
struct AttentionHead {
  int64_t tokens = 0;
  /// In the forward of FloatProducts, the number of positions before the first token. Keys and
  /// values include them: they are [before + tokens, H]. 0 everywhere else.
  int64_t before = 0;
  int64_t head_dim = 0;
  /// In the forward of FloatProducts, H of v and o, a multiple of 16, where values are of another
  /// size than keys. 0 everywhere else: as keys.
  int64_t value_dim = 0;
  /// How many positions a query sees, including its own; before + tokens or more means all before
  /// it.
  int64_t window = 0;
  /// Scores become cap * tanh(score / cap); 0: they stay.
  float cap = 0;
  /// A score beside the others that has no value; minus infinity: there is none. Its share is in
  /// lse.
  float sink = -__builtin_inff();
  /// [tokens, H], queries already scaled; keys and values.
  const float* q = nullptr;
  const float* k = nullptr;
  const float* v = nullptr;
  /// The same transposed in tiles: tile j is [H, kTile], its columns positions 64 j and on, zeros
  /// behind the last. Backward alone reads vt.
  const float* kt = nullptr;
  const float* vt = nullptr;
  /// Tiles of keys and values as PackedAttention packs them; of keys also what that takes away, or
  /// null: then it is lost, as of queries.
  const uint32_t* packed_k = nullptr;
  const uint32_t* packed_k_low = nullptr;
  const uint32_t* packed_v = nullptr;
  /// [tokens, H], and log of the sum of exponentials of each row's scores. Forward writes, backward
  /// reads; forward alone needs no lse.
  float* o = nullptr;
  float* lse = nullptr;
  /// Backward: the output's gradient [tokens, H], the row sums of o * d_o, and what becomes of
  /// q (written), k and v (added to).
  const float* d_o = nullptr;
  const float* delta = nullptr;
  float* d_q = nullptr;
  float* d_k = nullptr;
  float* d_v = nullptr;
};

/// A number of IEEE 754's binary16 as it lies in memory.
struct Float16 {
  uint16_t bits;
};

/// Neighbours that share a scale in a cache of 8 bits.
inline constexpr int64_t kByteBlock = 32;
/// Number i of them is scale * values[i]. GGUF's Q8_0 with a scale of float32.
struct ByteBlock {
  float scale;
  int8_t values[kByteBlock];
};

/// Attention of one token's queries that read one kv head of a cache, in float32.
struct CachedHead {
  int64_t queries = 1;
  /// Those that the token sees, its own included.
  int64_t positions = 0;
  int64_t head_dim = 0;
  /// The outputs' numbers that are computed, the first ones; 0: all H.
  int64_t value_dim = 0;
  /// As AttentionHead has them; a sink for each query, or null.
  float cap = 0;
  const float* sinks = nullptr;
  /// [queries, H], already scaled; [positions, H] of the cache's type; [queries, H].
  const float* q = nullptr;
  const void* k = nullptr;
  const void* v = nullptr;
  float* o = nullptr;
};

/// Queries that are multiplied with keys and values together.
inline constexpr int kCachedQueries = 4;

/// Floats that CacheKernel::attend needs beside its arguments.
[[gnu::always_inline]] inline int64_t cached_scores(int64_t positions) {
  return kCachedQueries * positions;
}

/// The gated delta rule of one value head over a sequence, in float32 (see nn::delta_rule): for
/// each token the state becomes kept * state + key * written with written = rate * (value - key *
/// kept * state), and the output is query * state.
struct DeltaHead {
  int64_t tokens = 0;
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  /// [tokens, key_dim], of length one and scaled as they count.
  const float* queries = nullptr;
  const float* keys = nullptr;
  /// [tokens, value_dim], so many numbers apart.
  const float* values = nullptr;
  int64_t value_stride = 0;
  /// A number for each token, so many apart.
  const float* kept = nullptr;
  const float* rates = nullptr;
  int64_t number_stride = 0;
  /// [key_dim, value_dim], read and written.
  float* state = nullptr;
  /// [tokens, value_dim], so many numbers apart.
  float* out = nullptr;
  int64_t out_stride = 0;
};

/// A causal convolution of each channel by itself, in float32, and silu of it: y[t, c] = silu(the
/// sum over i of weights[i, c] * row t + i [c]).
struct Convolution {
  int64_t tokens = 0;
  int64_t channels = 0;
  int64_t taps = 0;
  /// tokens + taps - 1 rows, the oldest first, of which the channels begin at `first`.
  const float* const* rows = nullptr;
  int64_t first = 0;
  /// [taps, all channels], so many numbers apart; those of the channels begin at `first`, too.
  const float* weights = nullptr;
  int64_t weight_stride = 0;
  /// [tokens, channels].
  float* y = nullptr;
};

/// Rows [rows, size], float32 or bfloat16.
struct NormRows {
  int64_t rows = 0;
  int64_t size = 0;
  float eps = 0;
  const void* x = nullptr;
  const void* weight = nullptr;
  void* y = nullptr;
  /// 1 / sqrt(mean(x^2) + eps), a number per row.
  float* scale = nullptr;
};

/// Backward of it: d_x = scale * (d_y w - x scale^2 mean(d_y w x)) [+ d_sum]; d_weight, float32
/// [size], is added to.
struct NormGradient {
  const void* d_y = nullptr;
  /// A gradient of x itself to add, or null.
  const void* d_sum = nullptr;
  void* d_x = nullptr;
  float* d_weight = nullptr;
};

/// One row of logits [size] and what its softmax is made of.
struct LogitsRow {
  const void* x = nullptr;
  int64_t size = 0;
  /// What is subtracted first.
  float max = 0;
};

/// What clamped_swiglu multiplies its gate by in the sigmoid.
inline constexpr float kClampedSlope = 1.702F;

/// Loops for one element type.
struct ElementKernel {
  /// x + delta to `sum`, elements of one array.
  void (*add)(const void* x, const void* delta, void* sum, int64_t count);
  void (*norm)(const NormRows& rows);
  void (*norm_backward)(const NormRows& rows, const NormGradient& gradient);
  /// y = silu(gate) * up; backward overwrites gate and up by their gradients.
  void (*swiglu)(const void* gate, const void* up, void* y, int64_t count);
  void (*swiglu_backward)(const void* gate, const void* up, const void* d_y, void* d_gate,
                          void* d_up, int64_t count);
  /// y = gelu(gate) * up by the approximation with tanh.
  void (*geglu)(const void* gate, const void* up, void* y, int64_t count);
  /// y = g * sigmoid(kClampedSlope * g) * (u + 1) with g = min(gate, limit), u = up within +-limit.
  void (*clamped_swiglu)(const void* gate, const void* up, float limit, void* y, int64_t count);
  /// y = x * sigmoid(gate); y may be one of them.
  void (*gate_by_sigmoid)(const void* gate, const void* x, void* y, int64_t count);
  float (*row_max)(const LogitsRow& row);
  /// Sum of exp(x - max).
  float (*row_exp_sum)(const LogitsRow& row);
  /// out = exp(x - max - log_sum) * factor - even; out may be x.
  void (*row_softmax)(const LogitsRow& row, float log_sum, float factor, float even, void* out);
  /// Between arrays of this type and float32.
  void (*widen)(const void* x, float* y, int64_t count);
  void (*narrow)(const float* x, void* y, int64_t count);
};

/// Loops over a cache whose keys and values are of one type.
struct CacheKernel {
  /// `scores` holds cached_scores(head.positions) floats. A query's result has the same bits
  /// whichever others are beside it.
  void (*attend)(const CachedHead& head, float* scores);
  /// Between that type and float32. float16 takes what is too large for it as its largest number;
  /// of blocks `count` is a multiple of kByteBlock, and one that holds a number that is not finite
  /// becomes NaN.
  void (*narrow)(const float* x, void* y, int64_t count);
  void (*widen)(const void* x, float* y, int64_t count);
};

/// The kernels of one instruction set.
struct Kernel {
  const char* name;
  bool (*runs_here)();
  void (*attend)(const AttentionHead& head, float* scratch);
  /// `scratch` holds attend_scratch() floats.
  void (*attend_backward)(const AttentionHead& head, float* scratch);
  /// Rope of a head [dim]: turns the pairs (x_i, x_(i + dim / 2)) by angles, of which cos and sin
  /// have dim / 2 or more; sign -1 turns them back.
  void (*rotate)(float* x, const float* cos, const float* sin, int64_t dim, float sign);
  /// A sequence's tokens have the same bits all at once and in pieces.
  void (*delta)(const DeltaHead& head);
  void (*convolve)(const Convolution& convolution);
  ElementKernel float32;
  ElementKernel bfloat16;
  CacheKernel float32_cache;
  CacheKernel float16_cache;
  /// Of ByteBlock; heads have a multiple of kByteBlock numbers.
  CacheKernel byte_cache;
};

/// Floats that attend and attend_backward need beside their arguments.
inline constexpr int64_t kAttendScratch = 2 * kTile * kTile;

/// Attention whose products are of bfloat16, summed in float32; kt and vt are not read. For heads
/// whose tensors are bfloat16, on processors that have instructions for it.
struct HalfAttention {
  bool (*runs_here)();
  void (*attend)(const AttentionHead& head, float* scratch);
  /// `scratch` holds half_attend_scratch(tokens, head_dim) floats.
  void (*attend_backward)(const AttentionHead& head, float* scratch);
};

/// Floats that HalfAttention needs beside its arguments.
[[gnu::always_inline]] inline int64_t half_attend_scratch(int64_t tokens, int64_t head_dim) {
  constexpr int64_t kPlaces = 7;
  const int64_t rows = (tokens + kTile - 1) / kTile * kTile;
  return kAttendScratch + kTile * kTile / 2 + kPlaces * rows * head_dim / 2;
}

/// Forward attention whose products are of bfloat16, over a cache that is packed once for all that
/// attend to it; for heads that can_pack takes.
struct PackedAttention {
  bool (*runs_here)();
  /// A tile of keys [count, H], count <= kTile, as [H / 2, kTile] pairs of a position's neighbours,
  /// zeros behind the last. What rounding takes away, rounded, goes to `low` in the same form,
  /// unless that is null. Source: Henry et al. 2019, arXiv:1904.06376.
  void (*pack_keys)(const float* keys, int64_t count, int64_t head_dim, uint32_t* tile,
                    uint32_t* low);
  /// A tile of values [count, H] as [kTile / 2, H] pairs of neighbouring positions'.
  void (*pack_values)(const float* values, int64_t count, int64_t head_dim, uint32_t* tile);
  /// Reads packed_k and packed_v instead of k, v and kt. `scratch` holds packed_attend_scratch
  /// floats.
  void (*attend)(const AttentionHead& head, float* scratch);
};

inline constexpr int64_t kPackedHeadDim = 256;

/// Whether PackedAttention takes heads of so many numbers.
[[gnu::always_inline]] inline bool can_pack(int64_t head_dim) {
  return head_dim % 32 == 0 && head_dim <= kPackedHeadDim;
}

/// Floats that PackedAttention::attend needs beside its arguments.
[[gnu::always_inline]] inline int64_t packed_attend_scratch(int64_t tokens, int64_t head_dim) {
  return kTile * kTile + kTile * kTile / 2 + tokens * head_dim;
}

#if defined(__x86_64__)
extern const Kernel kAvx512Kernel;
extern const Kernel kAvx2Kernel;
extern const HalfAttention kAvx512Bf16Attention;
extern const PackedAttention kAmxAttention;
#endif
extern const Kernel kPlainKernel;

}  // namespace weft::nn::kernels
