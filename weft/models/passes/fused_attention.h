#pragma once

#include <cstdint>

#include "weft/core/memory/scratch.h"
#include "weft/models/passes/pass_caches.h"
#include "weft/nn/attention/attention_spec.h"
#include "weft/nn/attention/rope.h"
#include "weft/nn/kernels/kernel.h"

namespace weft::models {

/// The attention of a fused pass: rope, the write to the cache, and queries against all that it
/// then holds, in memory that the next layer will use again. In float32, whether the cache is of
/// float32, float16 or 8 bits (reads_cache_of), but for passes by tiles where the processor
/// multiplies tiles of bfloat16: these round queries, keys, values and probabilities to it.
class FusedAttention {
 public:
  /// A pass of at most so many tokens reads the cache for one after the other by the kernel that a
  /// pass of one token takes, so that each token's output is that of a pass of its own, bit for
  /// bit. Longer ones go by tiles of queries.
  static constexpr int64_t kFewTokens = 16;

  /// Heads of all rows, one head after the other in each; rows are `stride` apart.
  struct Heads {
    float* data = nullptr;
    int64_t stride = 0;
    int64_t count = 0;
    float* row(int64_t index) const { return data + index * stride; }
  };
  /// A layer's part of a pass.
  struct Call : PassCaches {
    /// As the products gave them: rope turns queries and keys where they lie.
    Heads q, k, v;
    /// Null: nothing is turned.
    const nn::RopeAngles* angles = nullptr;
    /// What queries are multiplied by, a number for each of the angles; null: nothing.
    const float* query_factors = nullptr;
    /// Sinks, if there are any, of float32.
    const nn::AttentionSpec* spec = nullptr;
    int64_t layer = 0;
    /// The layer's keys and values of this pass are in the cache already: k and v only say how many
    /// heads there are.
    bool has_keys = false;

    /// Null: there are none.
    const float* sinks() const {
      return spec->sinks.defined() ? spec->sinks.const_data_ptr<float>() : nullptr;
    }
  };

  static bool reads_cache_of(at::ScalarType dtype) {
    return dtype == at::kFloat || dtype == at::kHalf || dtype == at::kChar;
  }

  struct Options {
    /// Passes of any length read the cache as those of few tokens do, so that a token's output has
    /// the same bits in all of them.
    bool is_exact = false;
    /// Passes of many tokens may round queries and keys to bfloat16 where that is faster.
    bool rounds_scores = false;
  };
  FusedAttention(int64_t head_dim, const Options& options);
  /// Writes keys and values behind the cache's positions, which the caller advances. Returns the
  /// rows' outputs, q.count * head_dim each, end to end, until the next call. Not collective.
  const float* run(const Call& call);

 private:
  void turn(const Call& call) const;
  void attend_each(const Call& call);
  void take_tiles(const Call& call);
  void take_tile(const Call& call, int64_t sequence, int64_t kv, int64_t tile) const;
  void attend_tiles(const Call& call);
  struct TileMemory;
  void attend_tile(const Call& call, int64_t sequence, int64_t head, int64_t first,
                   const TileMemory& memory);
  float* output(const Call& call, int64_t row, int64_t head) {
    return out_.data() + (row * call.q.count + head) * head_dim_;
  }
  int64_t floats_of_head(const Call& call) const;
  float* key_tiles(const Call& call, int64_t sequence, int64_t kv) const;
  float* value_rows(const Call& call, int64_t sequence, int64_t kv) const;
  int64_t numbers_of_head(const Call& call) const;
  uint32_t* packed_keys(const Call& call, int64_t sequence, int64_t kv) const;
  uint32_t* packed_low_keys(const Call& call, int64_t sequence, int64_t kv) const;
  uint32_t* packed_values(const Call& call, int64_t sequence, int64_t kv) const;

  int64_t head_dim_;
  Options options_;
  /// What multiplies tiles of bfloat16; null: they stay float32.
  const nn::kernels::PackedAttention* packed_ = nullptr;
  core::Scratch<float> out_;
  core::Scratch<float> scores_;
  /// Of each kv head, tiles of the cache's keys, transposed as nn::kernels::AttentionHead::kt wants
  /// them, and values that were not float32; or packed ones of both.
  core::Scratch<float> keys_;
};

}  // namespace weft::models
