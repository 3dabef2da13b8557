#pragma once

#include <cstdint>

#include "weft/quant/kernels/panel_kernel.h"
#include "weft/quant/kernels/streams.h"

/// Products of plain numbers in panels. All of it is templates on Isa, a type in the unnamed
/// namespace of the file that includes this: nothing is shared between files. Isa has the vector
/// types F (floats) and U (as many uint32_t), widen(halves): the floats of as many float16, and
/// kTokens, how many tokens are multiplied together, and kStreams, how many panels for a single
/// one; and of kShortBFloat16 table_of(upper bytes) and unpack(from, table, pairs): a vector of
/// each pair of kShortColumns columns, whose first lower bytes are at `from`. What makes such
/// numbers has Bytes (a vector of uint8_t); load_rows(rows, stride, row): kShortColumns numbers of
/// row `row` of each four rows, a lane of 16 bytes each; and, within lanes, low_words and
/// high_words, which interleave halves of two U, join_bytes(a, b), the lower bytes of all numbers
/// of 16 bits, which must have no others, and look_up(table, places); has_upper_bit: of any byte.
namespace weft::quant::kernels {

/// The numbers of a pair of columns, for all rows of a panel.
template <class Isa, PanelNumbers kNumbers>
struct ColumnPair {
  using F = typename Isa::F;
  static constexpr int kLanes = sizeof(F) / sizeof(float);
  static constexpr int kVectors = kPanelRows / kLanes;
  static constexpr int64_t kBytes = 2 * kPanelRows * (kNumbers == PanelNumbers::kFloat32 ? 4 : 2);

  F first[kVectors], second[kVectors];

  [[gnu::always_inline]] explicit ColumnPair(const uint8_t* from) {
    constexpr int64_t kVectorBytes = kBytes / 2 / kVectors;
    for (int v = 0; v < kVectors; ++v) {
      if constexpr (kNumbers == PanelNumbers::kBFloat16) {
        // bfloat16 is the upper half of a float32.
        typename Isa::U both;
        __builtin_memcpy(&both, from + 2 * kVectorBytes * v, sizeof(both));
        first[v] = reinterpret_cast<F>(both << 16);
        second[v] = reinterpret_cast<F>(both & 0xFFFF0000U);
      } else {
        first[v] = load(from + kVectorBytes * v);
        second[v] = load(from + kBytes / 2 + kVectorBytes * v);
      }
    }
  }

 private:
  [[gnu::always_inline]] static F load(const uint8_t* from) {
    if constexpr (kNumbers == PanelNumbers::kFloat16) return Isa::widen(from);
    F values;
    __builtin_memcpy(&values, from, sizeof(values));
    return values;
  }
};

/// Sums of kTokens tokens' products with a panel's rows. Even and odd columns are summed apart
/// whatever kTokens is, so that a token's result doesn't depend on its neighbours.
template <class Isa, int kTokens>
struct PairSums {
  using F = typename Isa::F;
  static constexpr int kLanes = sizeof(F) / sizeof(float);
  static constexpr int kVectors = kPanelRows / kLanes;

  F even[kTokens][kVectors] = {}, odd[kTokens][kVectors] = {};

  /// Vector v of a pair of columns; x: the pair's numbers of the first token.
  [[gnu::always_inline]] void add(int v, F first, F second, const float* x, int64_t stride) {
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      even[t][v] += first * x[t * stride];
      odd[t][v] += second * x[t * stride + 1];
    }
  }

  /// Writes the sums.
  [[gnu::always_inline]] void store(const PanelOutputs& y) const {
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      for (int v = 0; v < kVectors; ++v) {
        const F sum = even[t][v] + odd[t][v];
        __builtin_memcpy(y.data + t * y.stride + v * kLanes, &sum, sizeof(sum));
      }
    }
  }
};

/// kPanels panels for kTokens tokens.
template <class Isa, PanelNumbers kNumbers, int kTokens, int kPanels>
void multiply_dense_tile(const PanelRun& run, int64_t num_pairs, const DenseInputs& x,
                         const PanelOutputs& y) {
  using Pair = ColumnPair<Isa, kNumbers>;
  PairSums<Isa, kTokens> sums[kPanels];
  const uint8_t* panel = run.panel;
  const float* data = x.data;
  for (int64_t i = 0; i < num_pairs; ++i, panel += Pair::kBytes, data += 2) {
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) {
      const uint8_t* const own = panel + p * run.apart;
      if constexpr (kTokens == 1) fetch_ahead<kPanels>(own, Pair::kBytes);
      const Pair pair(own);
#pragma GCC unroll 4
      for (int v = 0; v < Pair::kVectors; ++v) {
        sums[p].add(v, pair.first[v], pair.second[v], data, x.stride);
      }
    }
  }
  for (int p = 0; p < kPanels; ++p) sums[p].store({y.data + p * run.rows_apart, y.stride});
}

/// Adds kShortColumns columns of a panel, which become floats on their way.
template <class Isa, int kTokens>
[[gnu::always_inline]] inline void add_short_columns(const uint8_t* from, typename Isa::Table table,
                                                     const DenseInputs& x,
                                                     PairSums<Isa, kTokens>& sums) {
  using F = typename Isa::F;
#pragma GCC unroll 4
  for (int v = 0; v < sums.kVectors; ++v) {
    typename Isa::U pairs[4];
    Isa::unpack(from + v * sizeof(F), table, pairs);
#pragma GCC unroll 4
    for (int pair = 0; pair < 4; ++pair) {
      sums.add(v, reinterpret_cast<F>(pairs[pair] << 16),
               reinterpret_cast<F>(pairs[pair] & 0xFFFF0000U), x.data + 2 * pair, x.stride);
    }
  }
}

/// multiply_dense_tile for numbers of 12 bits.
template <class Isa, int kTokens, int kPanels>
void multiply_short_tile(const PanelRun& run, int64_t num_pairs, const uint8_t* upper_bytes,
                         const DenseInputs& x, const PanelOutputs& y) {
  const auto table = Isa::table_of(upper_bytes);
  PairSums<Isa, kTokens> sums[kPanels];
  const uint8_t* panel = run.panel;
  DenseInputs columns = x;
  for (int64_t i = 0; i < num_pairs; i += 4, panel += kShortBytes, columns.data += kShortColumns) {
#pragma GCC unroll 4
    for (int p = 0; p < kPanels; ++p) {
      const uint8_t* const own = panel + p * run.apart;
      if constexpr (kTokens == 1) fetch_ahead<kPanels>(own, kShortBytes);
      add_short_columns<Isa, kTokens>(own, table, columns, sums[p]);
    }
  }
  for (int p = 0; p < kPanels; ++p) sums[p].store({y.data + p * run.rows_apart, y.stride});
}

/// PanelKernel::unpack_short.
template <class Isa>
void unpack_short(const Panels& w, int64_t panel, uint16_t* to) {
  constexpr int64_t kNumbers = sizeof(typename Isa::U) / sizeof(uint16_t);
  const uint8_t* from = w.data + panel * w.panel_bytes();
  const auto table = Isa::table_of(w.upper_bytes);
  for (int64_t i = 0; i < w.num_blocks * (kBlockColumns / kShortColumns);
       ++i, from += kShortBytes, to += kShortNumbers) {
    for (int64_t first = 0; first < 2 * kPanelRows; first += kNumbers) {
      typename Isa::U pairs[4];
      Isa::unpack(from + 2 * first, table, pairs);
      for (int p = 0; p < 4; ++p) {
        __builtin_memcpy(to + 2 * kPanelRows * p + first, &pairs[p], sizeof(pairs[p]));
      }
    }
  }
}

/// The numbers of a pair of columns of four rows each, pair by pair.
template <class Isa>
[[gnu::always_inline]] inline void load_pairs(const uint16_t* rows, int64_t stride,
                                              typename Isa::U (&pairs)[4]) {
  typename Isa::U row[4];
#pragma GCC unroll 4
  for (int r = 0; r < 4; ++r) row[r] = Isa::load_rows(rows, stride, r);
  const auto even_low = Isa::low_words(row[0], row[2]), odd_low = Isa::low_words(row[1], row[3]);
  const auto even_high = Isa::high_words(row[0], row[2]),
             odd_high = Isa::high_words(row[1], row[3]);
  pairs[0] = Isa::low_words(even_low, odd_low);
  pairs[1] = Isa::high_words(even_low, odd_low);
  pairs[2] = Isa::low_words(even_high, odd_high);
  pairs[3] = Isa::high_words(even_high, odd_high);
}

/// The index of each byte, or ShortIndices::kNone.
template <class Isa>
[[gnu::always_inline]] inline typename Isa::Bytes find_indices(typename Isa::Bytes bytes,
                                                               const ShortIndices& indices) {
  using Bytes = typename Isa::Bytes;
  const Bytes upper = bytes >> 4, lower = bytes & 15;
  Bytes found = Bytes{} + ShortIndices::kNone;
  for (int64_t i = 0; i < indices.num_halves; ++i) {
    const uint8_t half = indices.upper_halves[i];
    const Bytes own = Isa::look_up(Isa::table_of(indices.by_halves[half]), lower);
    found = upper == half ? own : found;
  }
  return found;
}

/// Writes what unpack reads; false if a number has no index.
template <class Isa>
[[gnu::always_inline]] inline bool pack_pairs(const typename Isa::U (&pairs)[4],
                                              const ShortIndices& indices, uint8_t* to) {
  using Bytes = typename Isa::Bytes;
  constexpr uint32_t kLower = 0x00FF00FF;
  Bytes lower[2], found[2];
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    const typename Isa::U a = pairs[2 * i], b = pairs[2 * i + 1];
    lower[i] = Isa::join_bytes(a & kLower, b & kLower);
    found[i] = find_indices<Isa>(Isa::join_bytes(a >> 8 & kLower, b >> 8 & kLower), indices);
  }
  const Bytes both = found[0] | found[1] << 4;
  __builtin_memcpy(to, &lower[0], sizeof(Bytes));
  __builtin_memcpy(to + kShortNumbers / 2, &lower[1], sizeof(Bytes));
  __builtin_memcpy(to + kShortNumbers, &both, sizeof(Bytes));
  return !Isa::has_upper_bit(found[0] | found[1]);
}

/// PanelKernel::pack_short.
template <class Isa>
int64_t pack_short(const uint16_t* rows, int64_t stride, const ShortIndices& indices, int64_t count,
                   uint8_t* to) {
  // A vector has as many rows of a pair of columns as it has lanes of float32.
  constexpr int64_t kRows = sizeof(typename Isa::U) / sizeof(uint32_t);
  for (int64_t i = 0; i < count; ++i, rows += kShortColumns, to += kShortBytes) {
    bool is_whole = true;
    for (int64_t row = 0; row < kPanelRows; row += kRows) {
      typename Isa::U pairs[4];
      load_pairs<Isa>(rows + row * stride, stride, pairs);
      is_whole &= pack_pairs<Isa>(pairs, indices, to + 4 * row);
    }
    if (!is_whole) return i;
  }
  return count;
}

/// kPanels panels for a tile of kTokens tokens.
template <class Isa, PanelNumbers kNumbers, int kTokens, int kPanels>
void multiply_dense_run(const Panels& w, const PanelRun& run, const DenseInputs& x,
                        const PanelOutputs& y) {
  const int64_t num_pairs = w.num_blocks * kBlockColumns / 2;
  if constexpr (kNumbers == PanelNumbers::kShortBFloat16) {
    multiply_short_tile<Isa, kTokens, kPanels>(run, num_pairs, w.upper_bytes, x, y);
  } else {
    multiply_dense_tile<Isa, kNumbers, kTokens, kPanels>(run, num_pairs, x, y);
  }
}

/// One panel for a tile of any number of tokens from 1 to kMost.
template <class Isa, PanelNumbers kNumbers, int kMost>
void multiply_dense_tokens(const Panels& w, const uint8_t* panel, const DenseInputs& x,
                           const PanelOutputs& y) {
  if constexpr (kMost > 1) {
    if (x.tokens < kMost) return multiply_dense_tokens<Isa, kNumbers, kMost - 1>(w, panel, x, y);
  }
  multiply_dense_run<Isa, kNumbers, kMost, 1>(w, {panel}, x, y);
}

/// A panel stays in the cache for all tokens.
template <class Isa, PanelNumbers kNumbers>
void multiply_dense_all(const Panels& w, int64_t first, int64_t count, const DenseInputs& x,
                        const PanelOutputs& y) {
  if (x.tokens == 1) {
    return for_streams<Isa::kStreams>(
        w, first, count, [&]<int kPanels>(const PanelRun& run, int64_t row) {
          multiply_dense_run<Isa, kNumbers, 1, kPanels>(w, run, x, {y.data + row, y.stride});
        });
  }
  const uint8_t* panel = w.data + first * w.panel_bytes();
  for (int64_t i = 0; i < count; ++i, panel += w.panel_bytes()) {
    for (int64_t t = 0; t < x.tokens; t += Isa::kTokens) {
      const int64_t tokens = x.tokens - t < Isa::kTokens ? x.tokens - t : Isa::kTokens;
      multiply_dense_tokens<Isa, kNumbers, Isa::kTokens>(
          w, panel, {x.data + t * x.stride, x.stride, tokens},
          {y.data + t * y.stride + i * kPanelRows, y.stride});
    }
  }
}

/// PanelKernel::multiply_dense.
template <class Isa>
void multiply_dense(const Panels& w, int64_t first, int64_t count, const DenseInputs& x,
                    const PanelOutputs& y) {
  switch (w.form.numbers) {
    case PanelNumbers::kBFloat16:
      return multiply_dense_all<Isa, PanelNumbers::kBFloat16>(w, first, count, x, y);
    case PanelNumbers::kShortBFloat16:
      return multiply_dense_all<Isa, PanelNumbers::kShortBFloat16>(w, first, count, x, y);
    case PanelNumbers::kFloat16:
      return multiply_dense_all<Isa, PanelNumbers::kFloat16>(w, first, count, x, y);
    default:
      return multiply_dense_all<Isa, PanelNumbers::kFloat32>(w, first, count, x, y);
  }
}

}  // namespace weft::quant::kernels
