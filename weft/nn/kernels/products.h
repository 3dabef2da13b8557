#pragma once

#include <cstdint>

/// Products of small matrices whose sums stay in registers. Factors come in words: a float, or two
/// bfloat16 of neighbouring summands. V: see vectors.h, with kGemmRows and kGemmVectors, the block
/// of sums, and for words other than float a Step<V, Word>.
namespace weft::nn::kernels {

/// A matrix whose word (i, j) is data[i * row + j * column].
template <class Word>
struct Operand {
  const Word* data;
  int64_t row;
  int64_t column;
};

/// A matrix whose rows are contiguous, `row` words apart.
template <class Word>
struct Factor {
  const Word* data;
  int64_t row;
};
/// Sums, written to.
struct Sums {
  float* data;
  int64_t row;
};

/// sum + word * row for a vector of words.
template <class V, class Word>
struct Step {
  using Row = typename V::F;
  [[gnu::always_inline]] static Row load(const float* from) { return V::load(from); }
  [[gnu::always_inline]] static typename V::F add(typename V::F sum, Row row, float word) {
    return sum + row * word;
  }
};

/// c [m, n] += a [m, k] b [k, n] for kRows rows and kVectors vectors of columns.
template <class V, int kRows, int kVectors, class Word>
[[gnu::always_inline]] inline void multiply_block(const Operand<Word>& a, const Factor<Word>& b,
                                                  int64_t k, const Sums& c) {
  using S = Step<V, Word>;
  typename V::F sums[kRows][kVectors];
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) sums[r][v] = V::load(c.data + r * c.row + v * V::kWidth);
  }
  for (int64_t i = 0; i < k; ++i) {
    typename S::Row row[kVectors];
    for (int v = 0; v < kVectors; ++v) row[v] = S::load(b.data + i * b.row + v * V::kWidth);
    for (int r = 0; r < kRows; ++r) {
      const Word word = a.data[r * a.row + i * a.column];
      for (int v = 0; v < kVectors; ++v) sums[r][v] = S::add(sums[r][v], row[v], word);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < kVectors; ++v) V::store(sums[r][v], c.data + r * c.row + v * V::kWidth);
  }
}

/// The same for m rows.
template <class V, int kVectors, class Word>
void multiply_panel(Operand<Word> a, const Factor<Word>& b, int64_t m, int64_t k, Sums c) {
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

/// c [m, n] += a [m, k] b [k, n] in vectors, k in words; n is a multiple of 16, rows of b and c are
/// contiguous.
template <class V, class Word>
void multiply_vectors(const Operand<Word>& a, const Factor<Word>& b, int64_t m, int64_t n,
                      int64_t k, const Sums& c) {
  constexpr int64_t kPanel = V::kGemmVectors * V::kWidth;
  int64_t j = 0;
  for (; j + kPanel <= n; j += kPanel) {
    multiply_panel<V, V::kGemmVectors>(a, Factor<Word>{b.data + j, b.row}, m, k,
                                       {c.data + j, c.row});
  }
  for (; j < n; j += V::kWidth) {
    multiply_panel<V, 1>(a, Factor<Word>{b.data + j, b.row}, m, k, {c.data + j, c.row});
  }
}

/// values = 0; count is a multiple of the width.
template <class V>
[[gnu::always_inline]] inline void clear(float* values, int64_t count) {
  for (int64_t i = 0; i < count; i += V::kWidth) V::store(typename V::F{}, values + i);
}

/// c [m, n] = a b or, with kAdds, c + a b, in the fastest way that V has: by its multiply_tiles or
/// in vectors.
template <class V, bool kAdds, class Word>
void multiply(const Operand<Word>& a, const Factor<Word>& b, int64_t m, int64_t n, int64_t k,
              const Sums& c) {
  if constexpr (requires { V::template multiply_tiles<kAdds>(a, b, m, n, k, c); }) {
    V::template multiply_tiles<kAdds>(a, b, m, n, k, c);
  } else {
    for (int64_t i = 0; !kAdds && i < m; ++i) clear<V>(c.data + i * c.row, n);
    multiply_vectors<V>(a, b, m, n, k, c);
  }
}

}  // namespace weft::nn::kernels
