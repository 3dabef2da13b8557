#pragma once

#include <cstdint>

#include "weft/nn/kernels/kernel.h"
#include "weft/nn/kernels/products.h"
#include "weft/nn/kernels/vectors.h"

/// Causal attention in tiles of kTile queries and keys, so that scores never leave the cache.
/// Source: Dao et al. 2022, arXiv:2205.14135. V: see products.h. Products: the matrix products of a
/// head, in float32 (FloatProducts) or of bfloat16 (pair_products.h).
namespace weft::nn::kernels {

/// values *= factor; count is a multiple of the width.
template <class V>
[[gnu::always_inline]] inline void scale_by(float factor, float* values, int64_t count) {
  for (int64_t i = 0; i < count; i += V::kWidth) V::store(V::load(values + i) * factor, values + i);
}

/// Queries first_row… against keys first_column… of a head whose first query has `before` positions
/// before it.
struct Tile {
  int64_t first_row;
  int64_t rows;
  int64_t first_column;
  int64_t before = 0;

  /// Columns [begin, end) of a row that its query sees.
  [[gnu::always_inline]] int64_t end(int64_t row) const {
    const int64_t seen = before + first_row + row + 1 - first_column;
    return seen < 0 ? 0 : seen < kTile ? seen : kTile;
  }
  [[gnu::always_inline]] int64_t begin(int64_t row, int64_t window) const {
    const int64_t hidden = before + first_row + row + 1 - window - first_column;
    return hidden < 0 ? 0 : hidden < kTile ? hidden : kTile;
  }
};

/// Rows of the tile that begins at row `first`.
[[gnu::always_inline]] inline int64_t rows_from(const AttentionHead& head, int64_t first) {
  return head.tokens - first < kTile ? head.tokens - first : kTile;
}

/// Keys of the tile that begins at position `first`.
[[gnu::always_inline]] inline int64_t keys_from(const AttentionHead& head, int64_t first) {
  const int64_t left = head.before + head.tokens - first;
  return left < kTile ? left : kTile;
}

/// The first tile of keys that any of the queries from `first_row` on sees.
[[gnu::always_inline]] inline int64_t first_tile(const AttentionHead& head, int64_t first_row) {
  const int64_t hidden = head.before + first_row + 1 - head.window;
  return hidden <= 0 ? 0 : hidden / kTile * kTile;
}

/// Numbers of a value.
[[gnu::always_inline]] inline int64_t value_dim(const AttentionHead& head) {
  return head.value_dim == 0 ? head.head_dim : head.value_dim;
}

/// Products of a head's rows in float32, as they are.
template <class V>
class FloatProducts {
 public:
  /// Either needs no memory of its own.
  static FloatProducts forward(const AttentionHead& head, float* /*scratch*/) {
    return FloatProducts(head);
  }
  static FloatProducts backward(const AttentionHead& head, float* /*scratch*/) {
    return FloatProducts(head);
  }

  /// s [rows, kTile] = q k^T.
  void scores(const Tile& tile, float* s) const { product(head_.q, head_.kt, tile, s); }
  /// d [rows, kTile] = d_o v^T.
  void score_gradients(const Tile& tile, float* d) const { product(head_.d_o, head_.vt, tile, d); }
  /// o += p v.
  void add_output(const Tile& tile, int64_t columns, const float* p) const {
    const int64_t dim = value_dim(head_);
    multiply<V, true>(as_rows(p), Factor<float>{head_.v + tile.first_column * dim, dim}, tile.rows,
                      dim, columns, {head_.o + tile.first_row * dim, dim});
  }
  /// d_v += p^T d_o, d_k += d^T q, d_q += d k.
  void add_gradients(const Tile& tile, int64_t columns, const float* p, const float* d) const {
    const int64_t H = head_.head_dim, row = tile.first_row * H, column = tile.first_column * H;
    multiply<V, true>(as_columns(p), Factor<float>{head_.d_o + row, H}, columns, H, tile.rows,
                      {head_.d_v + column, H});
    multiply<V, true>(as_columns(d), Factor<float>{head_.q + row, H}, columns, H, tile.rows,
                      {head_.d_k + column, H});
    multiply<V, true>(as_rows(d), Factor<float>{head_.k + column, H}, tile.rows, H, columns,
                      {head_.d_q + row, H});
  }

 private:
  explicit FloatProducts(const AttentionHead& head) : head_(head) {}

  static Operand<float> as_rows(const float* tile) { return {tile, kTile, 1}; }
  static Operand<float> as_columns(const float* tile) { return {tile, 1, kTile}; }

  void product(const float* rows, const float* columns, const Tile& tile, float* out) const {
    const int64_t H = head_.head_dim;
    multiply<V, false>(Operand<float>{rows + tile.first_row * H, H, 1},
                       Factor<float>{columns + tile.first_column * H, kTile}, tile.rows, kTile, H,
                       {out, kTile});
  }

  const AttentionHead& head_;
};

/// s = cap * tanh(s / cap); count is a multiple of the width.
template <class V>
[[gnu::always_inline]] inline void cap_scores(float cap, float* s, int64_t count) {
  for (int64_t i = 0; i < count; i += V::kWidth) {
    V::store(V::tanh(V::load(s + i) / cap) * cap, s + i);
  }
}

/// s [rows, kTile] = scores; what a query does not see becomes minus infinity.
template <class V, class Products>
void score_tile(const AttentionHead& head, const Products& products, const Tile& tile, float* s) {
  products.scores(tile, s);
  if (head.cap != 0) cap_scores<V>(head.cap, s, tile.rows * kTile);
  for (int64_t row = 0; row < tile.rows; ++row) {
    for (int64_t c = tile.end(row); c < kTile; ++c) s[row * kTile + c] = -__builtin_inff();
    const int64_t begin = tile.begin(row, head.window);
    for (int64_t c = 0; c < begin; ++c) s[row * kTile + c] = -__builtin_inff();
  }
}

/// What forward knows of a row so far: the largest score and the sum of exponentials.
struct RunningRow {
  float max;
  float sum;
};

/// Turns a row of scores into exp(score - max) and brings max, sum and the output up to date.
template <class V>
[[gnu::always_inline]] inline void soften_row(float* s, float* o, int64_t dim,
                                              RunningRow& running) {
  auto most = V::all(running.max);
  for (int64_t c = 0; c < kTile; c += V::kWidth) most = V::max(V::load(s + c), most);
  const float max = V::largest(most);
  if (max == -__builtin_inff()) {
    clear<V>(s, kTile);
    return;
  }
  typename V::F sums{};
  for (int64_t c = 0; c < kTile; c += V::kWidth) {
    const auto p = V::exp(V::load(s + c) - max);
    sums += p;
    V::store(p, s + c);
  }
  const float kept = V::exp(V::all(running.max - max))[0];
  running.sum = running.sum * kept + V::sum(sums);
  running.max = max;
  if (kept != 1) scale_by<V>(kept, o, dim);
}

/// Kernel::attend: the outputs and log sums of a head.
template <class V, class Products = FloatProducts<V>>
void attend(const AttentionHead& head, float* scratch) {
  const int64_t dim = value_dim(head);
  float* s = scratch;
  const auto products = Products::forward(head, scratch + kTile * kTile);
  for (int64_t first = 0; first < head.tokens; first += kTile) {
    const int64_t rows = rows_from(head, first);
    RunningRow running[kTile];
    const float sink_share = head.sink == -__builtin_inff() ? 0.0F : 1.0F;
    for (auto& row : running) row = {head.sink, sink_share};
    float* o = head.o + first * dim;
    clear<V>(o, rows * dim);
    const int64_t end = head.before + first + rows;
    for (int64_t column = first_tile(head, first); column < end; column += kTile) {
      const Tile tile{first, rows, column, head.before};
      score_tile<V>(head, products, tile, s);
      for (int64_t row = 0; row < rows; ++row) {
        soften_row<V>(s + row * kTile, o + row * dim, dim, running[row]);
      }
      products.add_output(tile, keys_from(head, column), s);
    }
    for (int64_t row = 0; row < rows; ++row) {
      scale_by<V>(1 / running[row].sum, o + row * dim, dim);
      if (head.lse == nullptr) continue;
      head.lse[first + row] = running[row].max + __builtin_logf(running[row].sum);
    }
  }
}

/// What the gradient of capped scores is multiplied by for that of the scores themselves.
template <class V>
[[gnu::always_inline]] inline typename V::F cap_slope(float cap, typename V::F capped) {
  const auto part = capped / cap;
  return capped < -cap ? typename V::F{} : 1.0F - part * part;
}

/// p [rows, kTile] = probabilities again, and d [rows, kTile] = the scores' gradient.
template <class V, class Products>
void differentiate_tile(const AttentionHead& head, const Products& products, const Tile& tile,
                        float* p, float* d) {
  score_tile<V>(head, products, tile, p);
  products.score_gradients(tile, d);
  for (int64_t row = 0; row < tile.rows; ++row) {
    const float lse = head.lse[tile.first_row + row], delta = head.delta[tile.first_row + row];
    for (int64_t c = row * kTile; c < (row + 1) * kTile; c += V::kWidth) {
      const auto score = V::load(p + c), probability = V::exp(score - lse);
      V::store(probability, p + c);
      auto gradient = probability * (V::load(d + c) - delta);
      if (head.cap != 0) gradient *= cap_slope<V>(head.cap, score);
      V::store(gradient, d + c);
    }
  }
}

/// Kernel::attend_backward: the gradients of a head.
template <class V, class Products = FloatProducts<V>>
void attend_backward(const AttentionHead& head, float* scratch) {
  float* p = scratch;
  float* d = scratch + kTile * kTile;
  const auto products = Products::backward(head, scratch + 2 * kTile * kTile);
  clear<V>(head.d_q, head.tokens * head.head_dim);
  for (int64_t first = 0; first < head.tokens; first += kTile) {
    const int64_t rows = rows_from(head, first);
    for (int64_t column = first_tile(head, first); column <= first; column += kTile) {
      const Tile tile{first, rows, column};
      differentiate_tile<V>(head, products, tile, p, d);
      products.add_gradients(tile, rows_from(head, column), p, d);
    }
  }
}

}  // namespace weft::nn::kernels
