#pragma once

#include <cstdint>

#include "weft/nn/kernels/pair_products.h"

/// The products of attention over a cache that is packed once for all queries. V: see
/// pair_products.h, with Session, which holds for as long as products are made.
namespace weft::nn::kernels {

/// out: what rounding takes away from `count` numbers, a multiple of the width, rounded as they
/// are.
template <class V>
void pack_rests(const float* x, int64_t count, Pair* out) {
  auto* const to = reinterpret_cast<uint16_t*>(out);
  for (int64_t i = 0; i < count; i += V::kWidth) {
    const auto values = V::load(x + i);
    const auto bits = __builtin_convertvector(V::narrow(values), typename V::U) << 16;
    V::store(values - reinterpret_cast<typename V::F>(bits), to + i);
  }
}

/// Positions first … first + V::kWidth of a tile, `left` of which are rows [., H / 2].
template <class V>
void write_columns(const Pair* rows, int64_t left, int64_t words, Pair* tile) {
  for (int64_t w = 0; w < words; ++w) {
    for (int64_t c = 0; c < V::kWidth; ++c) {
      tile[w * kTile + c] = c < left ? rows[c * words + w] : 0;
    }
  }
}

/// PackedAttention::pack_keys.
template <class V>
void pack_keys(const float* keys, int64_t count, int64_t head_dim, Pair* tile, Pair* low) {
  const int64_t words = head_dim / 2;
  alignas(64) Pair rows[V::kWidth * kPackedHeadDim / 2];
  for (int64_t first = 0; first < kTile; first += V::kWidth) {
    const int64_t left = count - first < V::kWidth ? count - first : V::kWidth;
    const float* const own = keys + first * head_dim;
    if (left > 0) pack_rows<V>(own, left, head_dim, rows);
    write_columns<V>(rows, left, words, tile + first);
    if (low == nullptr) continue;
    if (left > 0) pack_rests<V>(own, left * head_dim, rows);
    write_columns<V>(rows, left, words, low + first);
  }
}

/// PackedAttention::pack_values.
template <class V>
void pack_values(const float* values, int64_t count, int64_t head_dim, Pair* tile) {
  pack_columns<V>(values, count, head_dim, tile);
  for (int64_t i = (count + 1) / 2 * head_dim; i < kTile / 2 * head_dim; ++i) tile[i] = 0;
}

/// Queries, rounded to bfloat16, times a packed cache. Scores go through an exponential, so that
/// what rounding takes away from queries and keys counts more than that of weights and values,
/// which is lost.
template <class V>
class PackedProducts {
 public:
  /// scratch: what packed_attend_scratch says beyond kTile * kTile floats.
  static PackedProducts forward(const AttentionHead& head, float* scratch) {
    return PackedProducts(head, scratch);
  }

  /// As FloatProducts has them.
  void scores(const Tile& tile, float* s) const {
    if (head_.packed_k_low == nullptr) return score<false>(queries_, head_.packed_k, tile, s);
    score<false>(low_queries_, head_.packed_k, tile, s);
    score<true>(queries_, head_.packed_k_low, tile, s);
    score<true>(queries_, head_.packed_k, tile, s);
  }
  void add_output(const Tile& tile, int64_t /*columns*/, const float* p) const {
    const int64_t H = head_.head_dim;
    pack_rows<V>(p, tile.rows, kTile, tile_);
    multiply<V, true>(Operand<Pair>{tile_, kTile / 2, 1},
                      Factor<Pair>{head_.packed_v + tile.first_column * words_, H}, tile.rows, H,
                      kTile / 2, {head_.o + tile.first_row * H, H});
  }

 private:
  PackedProducts(const AttentionHead& head, float* scratch)
      : head_(head),
        words_(head.head_dim / 2),
        tile_(reinterpret_cast<Pair*>(scratch)),
        queries_(tile_ + kTile * kTile / 2),
        low_queries_(queries_ + head.tokens * words_) {
    pack_rows<V>(head.q, head.tokens, head.head_dim, queries_);
    if (head.packed_k_low == nullptr) return;
    pack_rests<V>(head.q, head.tokens * head.head_dim, low_queries_);
  }

  template <bool kAdds>
  void score(const Pair* queries, const Pair* keys, const Tile& tile, float* s) const {
    multiply<V, kAdds>(Operand<Pair>{queries + tile.first_row * words_, words_, 1},
                       Factor<Pair>{keys + tile.first_column * words_, kTile}, tile.rows, kTile,
                       words_, {s, kTile});
  }

  const AttentionHead& head_;
  int64_t words_;
  Pair* tile_;
  Pair* queries_;
  Pair* low_queries_;
  [[no_unique_address]] typename V::Session session_;
};

}  // namespace weft::nn::kernels
