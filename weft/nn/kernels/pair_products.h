#pragma once

#include <cstdint>

#include "weft/nn/kernels/attention_loops.h"

/// The products of attention of bfloat16, two summands at a time. V: see products.h, with
/// Step<V, Pair>, and store_pairs(low, high, to), which rounds two vectors of floats.
namespace weft::nn::kernels {

/// Two neighbouring summands as bfloat16, the first in the lower half.
using Pair = uint32_t;

/// out [rows, width / 2]: neighbours of a row.
template <class V>
void pack_rows(const float* x, int64_t rows, int64_t width, Pair* out) {
  auto* const to = reinterpret_cast<uint16_t*>(out);
  int64_t i = 0;
  if constexpr (requires { V::store_two(V::load(x), V::load(x), to); }) {
    for (; i + 2 * V::kWidth <= rows * width; i += 2 * V::kWidth) {
      V::store_two(V::load(x + i), V::load(x + i + V::kWidth), to + i);
    }
  }
  for (; i < rows * width; i += V::kWidth) V::store(V::load(x + i), to + i);
}

/// out [(rows + 1) / 2, width]: neighbours of a column, with zeros after the last row.
template <class V>
void pack_columns(const float* x, int64_t rows, int64_t width, Pair* out) {
  for (int64_t row = 0; row < rows; row += 2) {
    for (int64_t i = 0; i < width; i += V::kWidth) {
      const auto low = V::load(x + row * width + i);
      const auto high = row + 1 < rows ? V::load(x + (row + 1) * width + i) : typename V::F{};
      V::store_pairs(low, high, out + row / 2 * width + i);
    }
  }
}

/// `rows` [tokens, H / 2] as pack_rows makes them to tiles of [H / 2, kTile], with zeros after the
/// last row.
template <class V>
void transpose_tiles(const AttentionHead& head, const Pair* rows, Pair* tiles) {
  const int64_t words = head.head_dim / 2;
  for (int64_t first = 0; first < head.tokens; first += kTile) {
    const int64_t count = rows_from(head, first);
    Pair* tile = tiles + first * words;
    for (int64_t w = 0; w < words; ++w) {
      for (int64_t c = 0; c < count; ++c) tile[w * kTile + c] = rows[(first + c) * words + w];
      for (int64_t c = count; c < kTile; ++c) tile[w * kTile + c] = 0;
    }
  }
}

/// Products of a head's rows, rounded to bfloat16 and summed in float32.
template <class V>
class PairProducts {
 public:
  /// scratch: half_scratch floats.
  static PairProducts forward(const AttentionHead& head, float* scratch) {
    PairProducts products(head, scratch);
    products.pack_scores();
    pack_columns<V>(head.v, head.tokens, head.head_dim, products.at(kVPairs));
    return products;
  }
  static PairProducts backward(const AttentionHead& head, float* scratch) {
    PairProducts products(head, scratch);
    const int64_t T = head.tokens, H = head.head_dim;
    products.pack_scores();
    pack_rows<V>(head.v, T, H, products.at(kDORows));
    transpose_tiles<V>(head, products.at(kDORows), products.at(kVColumns));
    pack_rows<V>(head.d_o, T, H, products.at(kDORows));
    pack_columns<V>(head.d_o, T, H, products.at(kDOPairs));
    pack_columns<V>(head.q, T, H, products.at(kQPairs));
    pack_columns<V>(head.k, T, H, products.at(kKPairs));
    return products;
  }

  /// As FloatProducts has them.
  void scores(const Tile& tile, float* s) const { product(kQRows, kKColumns, tile, s); }
  void score_gradients(const Tile& tile, float* d) const { product(kDORows, kVColumns, tile, d); }
  void add_output(const Tile& tile, int64_t columns, const float* p) const {
    const int64_t H = head_.head_dim;
    pack_rows<V>(p, tile.rows, kTile, tile_);
    multiply<V, true>(as_rows(), pairs(kVPairs, tile.first_column), tile.rows, H, (columns + 1) / 2,
                      {head_.o + tile.first_row * H, H});
  }
  void add_gradients(const Tile& tile, int64_t columns, const float* p, const float* d) const {
    const int64_t H = head_.head_dim, steps = (tile.rows + 1) / 2;
    pack_columns<V>(p, tile.rows, kTile, tile_);
    multiply<V, true>(as_columns(), pairs(kDOPairs, tile.first_row), columns, H, steps,
                      {head_.d_v + tile.first_column * H, H});
    pack_columns<V>(d, tile.rows, kTile, tile_);
    multiply<V, true>(as_columns(), pairs(kQPairs, tile.first_row), columns, H, steps,
                      {head_.d_k + tile.first_column * H, H});
    pack_rows<V>(d, tile.rows, kTile, tile_);
    multiply<V, true>(as_rows(), pairs(kKPairs, tile.first_column), tile.rows, H, (columns + 1) / 2,
                      {head_.d_q + tile.first_row * H, H});
  }

 private:
  // What is packed: rows, tiles of columns, and pairs of rows.
  enum Place {
    kQRows,
    kKColumns,
    kVPairs,
    kVColumns = kVPairs,
    kDORows,
    kDOPairs,
    kQPairs,
    kKPairs
  };

  PairProducts(const AttentionHead& head, float* scratch)
      : head_(head),
        words_((head.tokens + kTile - 1) / kTile * kTile * head.head_dim / 2),
        tile_(reinterpret_cast<Pair*>(scratch)) {}

  Pair* at(Place place) const { return tile_ + kTile * kTile / 2 + place * words_; }

  void pack_scores() const {
    pack_rows<V>(head_.k, head_.tokens, head_.head_dim, at(kQRows));
    transpose_tiles<V>(head_, at(kQRows), at(kKColumns));
    pack_rows<V>(head_.q, head_.tokens, head_.head_dim, at(kQRows));
  }

  Operand<Pair> as_rows() const { return {tile_, kTile / 2, 1}; }
  Operand<Pair> as_columns() const { return {tile_, 1, kTile}; }
  // Rows from the even row `first` on.
  Factor<Pair> pairs(Place place, int64_t first) const {
    return {at(place) + first / 2 * head_.head_dim, head_.head_dim};
  }

  void product(Place rows, Place columns, const Tile& tile, float* out) const {
    const int64_t words = head_.head_dim / 2;
    multiply<V, false>(Operand<Pair>{at(rows) + tile.first_row * words, words, 1},
                       Factor<Pair>{at(columns) + tile.first_column * words, kTile}, tile.rows,
                       kTile, words, {out, kTile});
  }

  const AttentionHead& head_;
  int64_t words_;
  Pair* tile_;
};

}  // namespace weft::nn::kernels
