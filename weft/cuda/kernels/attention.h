#pragma once

#include <cstdint>

namespace weft::cuda {

/// The largest head that attention takes.
inline constexpr int64_t kMostHeadDim = 256;
/// Passes of at most so many tokens have the bits of passes of one token.
inline constexpr int32_t kFewTokens = 16;

/// One layer's attention of a pass, [rows] = [batch, tokens], after the positions of a cache: all
/// pointers into the GPU's memory. Heads lie side by side in a row.
struct AttentionCall {
  /// [rows, heads * head_dim], and [rows, kv_heads * head_dim]; without bias. q is overwritten.
  float* q = nullptr;
  const float* k = nullptr;
  const float* v = nullptr;
  /// Of such a row; null: none.
  const float* q_bias = nullptr;
  const float* k_bias = nullptr;
  const float* v_bias = nullptr;
  /// [head_dim] of a norm of each head on its own; null: none. Source: Henry et al. 2020,
  /// arXiv:2010.04245.
  const float* q_norm = nullptr;
  const float* k_norm = nullptr;
  /// [tokens, turned_dim] of the tokens' positions.
  const float* cos = nullptr;
  const float* sin = nullptr;
  /// [tokens] that queries are multiplied by beside `scale`; null: none.
  const float* query_factors = nullptr;
  /// [batch, kv_heads, capacity, head_dim]; gets those of the pass from position `*start` on.
  float* keys = nullptr;
  float* values = nullptr;
  /// The number of positions before the pass, in memory, so that a graph reads it each time it
  /// runs.
  const int32_t* start = nullptr;
  /// [heads].
  const int32_t* kv_of_head = nullptr;
  /// [heads] scores that take a share of the softmax without a value; null: none. Source: gpt-oss,
  /// arXiv:2508.10925.
  const float* sinks = nullptr;
  /// [rows, heads * head_dim].
  float* out = nullptr;
  /// Memory for attention_scratch() numbers; without values.
  float* scratch = nullptr;
  int32_t rows = 0;
  int32_t tokens = 0;
  int32_t heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  int32_t turned_dim = 0;
  /// Pairs that are turned are (2 i, 2 i + 1), as turned_beside has it.
  bool turns_neighbours = false;
  int32_t capacity = 0;
  /// Only the last positions, this many, are seen; 0: all.
  int32_t window = 0;
  /// Of scores before the softmax.
  float scale = 1;
  /// Scaled scores become cap * tanh(score / cap); 0: they stay. Source: Gemma 2, arXiv:2408.00118.
  float cap = 0;
  float eps = 0;
};

/// The numbers of a call's scratch memory, by its sizes alone.
int64_t attention_scratch(const AttentionCall& call);

/// Adds biases, norms and turns heads, scales queries, writes keys and values
/// to the cache, and attends: softmax over all positions up to each token's own, in one sweep
/// or, for few tokens, a sweep over each part of the positions. Source of the sweep: Milakov and
/// Gimelshein 2018, arXiv:1805.02867. The caller sees to it that the cache has room and head_dim is
/// at most kMostHeadDim.
void attend(const AttentionCall& call);

}  // namespace weft::cuda
