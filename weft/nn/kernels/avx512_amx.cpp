#if defined(__x86_64__)

#include <immintrin.h>

#include "weft/core/amx.h"
#include "weft/nn/kernels/avx512_pairs.h"
#include "weft/nn/kernels/packed_products.h"

namespace weft::nn::kernels {
namespace {

// Rows, and words of a row, of a tile register.
constexpr int64_t kSide = core::TileShapes::kRows;
constexpr int64_t kRowBytes = core::TileShapes::kBytes;

core::TileShapes full_tiles() {
  core::TileShapes shapes;
  for (int tile = 0; tile < core::TileShapes::kNum; ++tile) shapes.set(tile, kSide, kRowBytes);
  return shapes;
}

struct FullTiles {
  core::TileSession tiles{full_tiles()};
};

// Tiles of c, one or two of rows and of columns, = [c +] a [., k] b [k, .]: registers 0 to 3 are
// c's, 4 and 5 a's, 6 and 7 b's.
template <bool kAdds, bool kHasOtherRows, bool kHasOtherColumns>
void multiply_block_of_tiles(const Operand<Pair>& a, const Factor<Pair>& b, int64_t k,
                             const Sums& c) {
  const int64_t a_bytes = 4 * a.row, b_bytes = 4 * b.row, c_bytes = 4 * c.row;
  float* const others = c.data + kSide * c.row;
  if constexpr (kAdds) {
    _tile_loadd(0, c.data, c_bytes);
    if constexpr (kHasOtherColumns) _tile_loadd(1, c.data + kSide, c_bytes);
    if constexpr (kHasOtherRows) _tile_loadd(2, others, c_bytes);
    if constexpr (kHasOtherRows && kHasOtherColumns) _tile_loadd(3, others + kSide, c_bytes);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t i = 0; i < k; i += kSide) {
    const Pair* const factor = b.data + i * b.row;
    _tile_loadd(4, a.data + i, a_bytes);
    _tile_loadd(6, factor, b_bytes);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kHasOtherColumns) {
      _tile_loadd(7, factor + kSide, b_bytes);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (kHasOtherRows) {
      _tile_loadd(5, a.data + kSide * a.row + i, a_bytes);
      _tile_dpbf16ps(2, 5, 6);
      if constexpr (kHasOtherColumns) _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, c.data, c_bytes);
  if constexpr (kHasOtherColumns) _tile_stored(1, c.data + kSide, c_bytes);
  if constexpr (kHasOtherRows) _tile_stored(2, others, c_bytes);
  if constexpr (kHasOtherRows && kHasOtherColumns) _tile_stored(3, others + kSide, c_bytes);
}

// The same by what there is.
template <bool kAdds>
void multiply_some_tiles(bool has_rows, bool has_columns, const Operand<Pair>& a,
                         const Factor<Pair>& b, int64_t k, const Sums& c) {
  const auto multiply_block = has_rows
                                  ? (has_columns ? multiply_block_of_tiles<kAdds, true, true>
                                                 : multiply_block_of_tiles<kAdds, true, false>)
                                  : (has_columns ? multiply_block_of_tiles<kAdds, false, true>
                                                 : multiply_block_of_tiles<kAdds, false, false>);
  multiply_block(a, b, k, c);
}

struct File;
struct Amx : Avx512Pairs<File> {
  using Session = FullTiles;

  // Whole tiles of a's rows by tiles, the rest in vectors; a's rows are contiguous, whole tiles
  // too.
  template <bool kAdds>
  static void multiply_tiles(const Operand<Pair>& a, const Factor<Pair>& b, int64_t m, int64_t n,
                             int64_t k, const Sums& c);

  // 2^(x log2 e), the power's fraction by its Taylor series: within 3e-6, less than a hundredth of
  // what rounding to bfloat16 takes.
  [[gnu::always_inline]] static F exp(F x) {
    // Minus infinity has no fraction, and what is smaller than the smallest normal number is slow.
    const __m512 power =
        _mm512_max_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504F)), _mm512_set1_ps(-126));
    const __m512 whole = _mm512_roundscale_ps(power, _MM_FROUND_TO_NEAREST_INT);
    const __m512 r = _mm512_sub_ps(power, whole);
    __m512 p = _mm512_set1_ps(0.00133335581F);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.00961812911F));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.0555041087F));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.240226507F));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.693147181F));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1));
    return _mm512_scalef_ps(p, whole);
  }
};

}  // namespace

template <>
struct Step<Amx, Pair> : Avx512PairStep {};

namespace {

template <bool kAdds>
void Amx::multiply_tiles(const Operand<Pair>& a, const Factor<Pair>& b, int64_t m, int64_t n,
                         int64_t k, const Sums& c) {
  core::finish_writes(a.data);
  const int64_t rows = m / kSide * kSide;
  for (int64_t i = 0; i < rows; i += 2 * kSide) {
    for (int64_t j = 0; j < n; j += 2 * kSide) {
      multiply_some_tiles<kAdds>(i + kSide < rows, j + kSide < n,
                                 {a.data + i * a.row, a.row, a.column}, {b.data + j, b.row}, k,
                                 {c.data + i * c.row + j, c.row});
    }
  }
  for (int64_t i = rows; !kAdds && i < m; ++i) clear<Amx>(c.data + i * c.row, n);
  multiply_vectors<Amx>(Operand<Pair>{a.data + rows * a.row, a.row, a.column}, b, m - rows, n, k,
                        {c.data + rows * c.row, c.row});
}

bool runs_here() { return core::has_amx() && __builtin_cpu_supports("avx512bf16"); }

}  // namespace

const PackedAttention kAmxAttention = {runs_here, pack_keys<Amx>, pack_values<Amx>,
                                       attend<Amx, PackedProducts<Amx>>};

}  // namespace weft::nn::kernels

#endif
