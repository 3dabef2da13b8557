#pragma once

#include <cstdint>

#include "weft/nn/kernels/kernel.h"
#include "weft/nn/kernels/vectors.h"

/// Causal attention in tiles of kTile queries and keys, so that scores never leave the cache.
/// Source: Dao et al. 2022, arXiv:2205.14135. V: see vectors.h, with kGemmRows and kGemmVectors,
/// the block of sums that stays in registers.
namespace weft::nn::kernels {

/// A matrix whose element (i, j) is data[i * row + j * column].
struct Operand {
  const float* data;
  int64_t row;
  int64_t column;
};

/// A matrix whose rows are contiguous, `row` elements apart.
struct Factor {
  const float* data;
  int64_t row;
};
/// The same, written to.
struct Sums {
  float* data;
  int64_t row;
};

/// c [m, n] += a [m, k] b [k, n] for kRows rows and kVectors vectors of columns.
template <class V, int kRows, int kVectors>
[[gnu::always_inline]] inline void multiply_block(const Operand& a, const Factor& b, int64_t k,
                                                  const Sums& c) {
  typename V::F sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) sums[r][v] = V::load(c.data + r * c.row + v * V::kWidth);
  }
  for (int64_t i = 0; i < k; ++i) {
    typename V::F row[kVectors];
    for (int v = 0; v < kVectors; ++v) row[v] = V::load(b.data + i * b.row + v * V::kWidth);
    for (int r = 0; r < kRows; ++r) {
      const float factor = a.data[r * a.row + i * a.column];
      for (int v = 0; v < kVectors; ++v) sums[r][v] += row[v] * factor;
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) V::store(sums[r][v], c.data + r * c.row + v * V::kWidth);
  }
}

/// The same for m rows.
template <class V, int kVectors>
void multiply_panel(Operand a, const Factor& b, int64_t m, int64_t k, Sums c) {
  for (; m >= V::kGemmRows; m -= V::kGemmRows) {
    multiply_block<V, V::kGemmRows, kVectors>(a, b, k, c);
    a.data += V::kGemmRows * a.row;
    c.data += V::kGemmRows * c.row;
  }
  for (; m >= 2; m -= 2) {
    multiply_block<V, 2, kVectors>(a, b, k, c);
    a.data += 2 * a.row;
    c.data += 2 * c.row;
  }
  if (m > 0) multiply_block<V, 1, kVectors>(a, b, k, c);
}

/// c [m, n] += a [m, k] b [k, n]; n is a multiple of 16, rows of b and c are contiguous.
template <class V>
void multiply_add(const Operand& a, const Factor& b, int64_t m, int64_t n, int64_t k,
                  const Sums& c) {
  constexpr int64_t kPanel = V::kGemmVectors * V::kWidth;
  int64_t j = 0;
  for (; j + kPanel <= n; j += kPanel) {
    multiply_panel<V, V::kGemmVectors>(a, {b.data + j, b.row}, m, k, {c.data + j, c.row});
  }
  for (; j < n; j += V::kWidth) {
    multiply_panel<V, 1>(a, {b.data + j, b.row}, m, k, {c.data + j, c.row});
  }
}

/// values = 0; count is a multiple of the width.
template <class V>
[[gnu::always_inline]] inline void clear(float* values, int64_t count) {
  for (int64_t i = 0; i < count; i += V::kWidth) V::store(typename V::F{}, values + i);
}

/// values *= factor; count is a multiple of the width.
template <class V>
[[gnu::always_inline]] inline void scale_by(float factor, float* values, int64_t count) {
  for (int64_t i = 0; i < count; i += V::kWidth) V::store(V::load(values + i) * factor, values + i);
}

/// Queries first_row… against keys first_column… of a head.
struct Tile {
  int64_t first_row;
  int64_t rows;
  int64_t first_column;

  /// Columns [begin, end) of a row that its query sees.
  [[gnu::always_inline]] int64_t end(int64_t row) const {
    const int64_t seen = first_row + row + 1 - first_column;
    return seen < 0 ? 0 : seen < kTile ? seen : kTile;
  }
  [[gnu::always_inline]] int64_t begin(int64_t row, int64_t window) const {
    const int64_t hidden = first_row + row + 1 - window - first_column;
    return hidden < 0 ? 0 : hidden < kTile ? hidden : kTile;
  }
};

/// Rows of the tile that begins at row `first`.
[[gnu::always_inline]] inline int64_t rows_from(const AttentionHead& head, int64_t first) {
  return head.tokens - first < kTile ? head.tokens - first : kTile;
}

/// The first tile of keys that any of the queries from `first_row` on sees.
[[gnu::always_inline]] inline int64_t first_tile(const AttentionHead& head, int64_t first_row) {
  const int64_t hidden = first_row + 1 - head.window;
  return hidden <= 0 ? 0 : hidden / kTile * kTile;
}

/// s [rows, kTile] = scores; what a query does not see becomes minus infinity.
template <class V>
void score_tile(const AttentionHead& head, const Tile& tile, float* s) {
  const int64_t H = head.head_dim;
  clear<V>(s, tile.rows * kTile);
  multiply_add<V>({head.q + tile.first_row * H, H, 1}, {head.kt + tile.first_column * H, kTile},
                  tile.rows, kTile, H, {s, kTile});
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
[[gnu::always_inline]] inline void soften_row(float* s, float* o, int64_t head_dim,
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
  const float kept = __builtin_expf(running.max - max);
  running.sum = running.sum * kept + V::sum(sums);
  running.max = max;
  if (kept != 1) scale_by<V>(kept, o, head_dim);
}

/// Kernel::attend: the outputs and log sums of a head.
template <class V>
void attend(const AttentionHead& head, float* scratch) {
  const int64_t H = head.head_dim;
  float* s = scratch;
  for (int64_t first = 0; first < head.tokens; first += kTile) {
    const int64_t rows = rows_from(head, first);
    RunningRow running[kTile];
    for (auto& row : running) row = {-__builtin_inff(), 0};
    float* o = head.o + first * H;
    clear<V>(o, rows * H);
    for (int64_t column = first_tile(head, first); column <= first; column += kTile) {
      score_tile<V>(head, {first, rows, column}, s);
      for (int64_t row = 0; row < rows; ++row) {
        soften_row<V>(s + row * kTile, o + row * H, H, running[row]);
      }
      multiply_add<V>({s, kTile, 1}, {head.v + column * H, H}, rows, H, rows_from(head, column),
                      {o, H});
    }
    for (int64_t row = 0; row < rows; ++row) {
      scale_by<V>(1 / running[row].sum, o + row * H, H);
      head.lse[first + row] = running[row].max + __builtin_logf(running[row].sum);
    }
  }
}

/// p [rows, kTile] = probabilities again, and d [rows, kTile] = the scores' gradient.
template <class V>
void differentiate_tile(const AttentionHead& head, const Tile& tile, float* p, float* d) {
  const int64_t H = head.head_dim;
  score_tile<V>(head, tile, p);
  clear<V>(d, tile.rows * kTile);
  multiply_add<V>({head.d_o + tile.first_row * H, H, 1}, {head.vt + tile.first_column * H, kTile},
                  tile.rows, kTile, H, {d, kTile});
  for (int64_t row = 0; row < tile.rows; ++row) {
    const float lse = head.lse[tile.first_row + row], delta = head.delta[tile.first_row + row];
    for (int64_t c = row * kTile; c < (row + 1) * kTile; c += V::kWidth) {
      const auto probability = V::exp(V::load(p + c) - lse);
      V::store(probability, p + c);
      V::store(probability * (V::load(d + c) - delta), d + c);
    }
  }
}

/// Kernel::attend_backward: the gradients of a head.
template <class V>
void attend_backward(const AttentionHead& head, float* scratch) {
  const int64_t H = head.head_dim;
  float* p = scratch;
  float* d = scratch + kTile * kTile;
  clear<V>(head.d_q, head.tokens * H);
  for (int64_t first = 0; first < head.tokens; first += kTile) {
    const int64_t rows = rows_from(head, first);
    for (int64_t column = first_tile(head, first); column <= first; column += kTile) {
      const int64_t columns = rows_from(head, column);
      differentiate_tile<V>(head, {first, rows, column}, p, d);
      multiply_add<V>({p, 1, kTile}, {head.d_o + first * H, H}, columns, H, rows,
                      {head.d_v + column * H, H});
      multiply_add<V>({d, 1, kTile}, {head.q + first * H, H}, columns, H, rows,
                      {head.d_k + column * H, H});
      multiply_add<V>({d, kTile, 1}, {head.k + column * H, H}, rows, H, columns,
                      {head.d_q + first * H, H});
    }
  }
}

}  // namespace weft::nn::kernels
