#pragma once

#include <cstdint>
#include <vector>

#include "weft/nn/kv_cache.h"
#include "weft/nn/rope.h"

namespace weft::models {

/// The attention of a fused pass: rope, the write to the cache, and queries against all that it
/// then holds, in float32 and in memory that the next layer will use again.
class FusedAttention {
 public:
  /// A pass of at most so many tokens reads the cache for one after the other by the kernel that a
  /// pass of one token takes, so that each token's output is that of a pass of its own, bit for
  /// bit. Longer ones go by tiles of queries.
  static constexpr int64_t kFewTokens = 16;

  /// Heads of all rows, one head after the other in each; rows are `stride` apart. Row b * tokens +
  /// t is token t of sequence b.
  struct Heads {
    float* data = nullptr;
    int64_t stride = 0;
    int64_t count = 0;
    float* row(int64_t index) const { return data + index * stride; }
  };
  /// A layer's part of a pass.
  struct Call {
    int64_t batch = 1;
    int64_t tokens = 0;
    /// As the products gave them: rope turns queries and keys where they lie.
    Heads q, k, v;
    const nn::RopeAngles* angles = nullptr;
    /// As for nn::grouped_query_attention.
    const std::vector<int64_t>* kv_of_head = nullptr;
    int64_t window = 0;
    int64_t layer = 0;
    nn::KvCache* cache = nullptr;

    int64_t rows() const { return batch * tokens; }
    int64_t start() const { return cache->length(); }
    int64_t positions() const { return start() + tokens; }
  };

  explicit FusedAttention(int64_t head_dim) : head_dim_(head_dim) {}
  /// Writes keys and values behind the cache's positions, which the caller advances. Returns the
  /// rows' outputs, q.count * head_dim each, end to end, until the next call. Not collective.
  const float* run(const Call& call);

 private:
  void turn(const Call& call) const;
  void attend_each(const Call& call);
  void transpose_keys(const Call& call);
  void attend_tiles(const Call& call);
  struct TileMemory;
  void attend_tile(const Call& call, int64_t sequence, int64_t head, int64_t first,
                   TileMemory& memory);
  float* output(const Call& call, int64_t row, int64_t head) {
    return out_.data() + (row * call.q.count + head) * head_dim_;
  }
  const float* key_tiles(const Call& call, int64_t sequence, int64_t kv) const;

  int64_t head_dim_;
  std::vector<float> out_;
  std::vector<float> scores_;
  /// Tiles of the cache's keys, transposed as nn::kernels::AttentionHead::kt wants them.
  std::vector<float> keys_;
};

}  // namespace weft::models
