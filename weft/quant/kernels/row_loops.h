#pragma once

#include <cstdint>
#include <cstring>

#include "weft/quant/kernels/kernel.h"
#include "weft/quant/kernels/unpack.h"

/// The loops that every instruction set shares. V is the instruction set: a type in the unnamed
/// namespace of the file that includes this, so nothing here is shared between files. V has
///   F, kWidth                          a vector of kWidth floats
///   zero, load, store, fma, sum, sum4  on F
///   Bytes, Nibbles, Stream<bits>,      how integer codes, and
///   E4m3Bytes, E2m1Nibbles,            how codes of floats become F: Table, table(scale, offset),
///   E2m1Stream                         decode, kVectors vectors from kBytes bytes
///   widen_half                         float16 to float32
///   kTileRows, kTileTokens             what multiply_tile keeps in registers
///   kTokens                            what multiply keeps in registers, at most 4
///   kFusedTokens                       from the next one on, multiply_tile is faster
namespace weft::quant::kernels {

/// Neighbouring rows with widened scales and offsets, each row `stride` elements after the last:
/// bases and strides, because a pointer per row does not fit the registers.
struct RowBlock {
  const uint8_t* codes;
  int64_t code_stride;
  const float* scales;
  const float* offsets;
  int64_t scale_stride;
};

/// Stores the sums of kRows neighbouring rows of one token.
template <class V, int kRows>
void store_sums(const typename V::F* sums, float* y) {
  if constexpr (kRows == 4) {
    V::sum4(sums[0], sums[1], sums[2], sums[3], y);
  } else {
    for (int r = 0; r < kRows; ++r) y[r] = V::sum(sums[r]);
  }
}

/// y = x w^T for kRows rows and kTokens tokens; all sums stay in registers.
template <class V, class Codes, int kRows, int kTokens>
// The five loops are one unrolled block of registers; a function for the inner ones would spill it.
// NOLINTNEXTLINE(readability-function-size)
void multiply_block(const Weights& w, const RowBlock& rows, const float* x, int64_t x_stride,
                    const Outputs& y) {
  constexpr int kBlock = Codes::kVectors * V::kWidth;
  typename V::F sums[kTokens][kRows];
  for (auto& token : sums) {
    for (auto& sum : token) sum = V::zero();
  }
  const int64_t blocks = w.group_size / kBlock;
  int64_t block = 0;
  for (int64_t group = 0; group < w.num_groups; ++group) {
    typename Codes::Table tables[kRows];
    for (int r = 0; r < kRows; ++r) {
      const int64_t scale = r * rows.scale_stride + group;
      tables[r] = Codes::table(rows.scales[scale], rows.offsets[scale]);
    }
    for (const int64_t end = block + blocks; block < end; ++block) {
      typename V::F values[kRows][Codes::kVectors];
      for (int r = 0; r < kRows; ++r) {
        const int64_t byte = r * rows.code_stride + block * Codes::kBytes;
        Codes::decode(rows.codes + byte, tables[r], values[r]);
      }
      for (int t = 0; t < kTokens; ++t) {
        for (int v = 0; v < Codes::kVectors; ++v) {
          const auto input = V::load(x + t * x_stride + block * kBlock + v * V::kWidth);
          for (int r = 0; r < kRows; ++r) sums[t][r] = V::fma(values[r][v], input, sums[t][r]);
        }
      }
    }
  }
  for (int t = 0; t < kTokens; ++t) store_sums<V, kRows>(sums[t], y.data + t * y.stride);
}

/// multiply_block for all tokens, V::kTokens at a time.
template <class V, class Codes, int kRows>
void multiply_tokens(const Weights& w, const RowBlock& rows, const Inputs& x, const Outputs& y) {
  int64_t t = 0;
  for (; t + V::kTokens <= x.tokens; t += V::kTokens) {
    multiply_block<V, Codes, kRows, V::kTokens>(w, rows, x.data + t * x.stride, x.stride,
                                                {y.data + t * y.stride, y.stride});
  }
  const float* x_rest = x.data + t * x.stride;
  const Outputs y_rest{y.data + t * y.stride, y.stride};
  switch (x.tokens - t) {
    case 3:
      multiply_block<V, Codes, kRows, 3>(w, rows, x_rest, x.stride, y_rest);
      break;
    case 2:
      multiply_block<V, Codes, kRows, 2>(w, rows, x_rest, x.stride, y_rest);
      break;
    case 1:
      multiply_block<V, Codes, kRows, 1>(w, rows, x_rest, x.stride, y_rest);
      break;
    default:
      break;
  }
}

/// Whether codes are read as nibbles, which come as all even, then all odd elements of a block.
template <class V>
bool reads_nibbles(const Weights& w) {
  return w.bits == 4 && w.group_size % (V::Nibbles::kVectors * V::kWidth) == 0;
}

/// Kernel::fuses: whether quant groups are whole runs of what one load decodes.
template <class V>
bool fuses(const Weights& w) {
  constexpr int kRun = V::kWidth > 8 ? V::kWidth : 8;
  return w.group_size % (w.bits == 8 ? V::kWidth : kRun) == 0;
}

/// Calls `action` with the way that V reads w's codes. w must pass `fuses`.
template <class V, class Action>
void with_codes(const Weights& w, const Action& action) {
  if (w.element == Element::kE4M3) return action.template operator()<typename V::E4m3Bytes>();
  if (w.element == Element::kE2M1) {
    return reads_nibbles<V>(w) ? action.template operator()<typename V::E2m1Nibbles>()
                               : action.template operator()<typename V::E2m1Stream>();
  }
  if (reads_nibbles<V>(w)) return action.template operator()<typename V::Nibbles>();
  switch (w.bits) {
    case 2:
      return action.template operator()<typename V::template Stream<2>>();
    case 3:
      return action.template operator()<typename V::template Stream<3>>();
    case 4:
      return action.template operator()<typename V::template Stream<4>>();
    case 5:
      return action.template operator()<typename V::template Stream<5>>();
    case 6:
      return action.template operator()<typename V::template Stream<6>>();
    default:
      return action.template operator()<typename V::Bytes>();
  }
}

/// kRows rows from `row` on, for all tokens.
template <class V, int kRows>
void multiply_rows(const Weights& w, int64_t row, const Inputs& x, const Outputs& y,
                   std::byte* scratch) {
  auto* scales = reinterpret_cast<float*>(scratch);
  float* offsets = scales + kRows * w.num_groups;
  for (int64_t r = 0; r < kRows; ++r) {
    widen_scales<V>(w, row + r, scales + r * w.num_groups, offsets + r * w.num_groups);
  }
  const RowBlock rows{w.packed + row * w.row_bytes(), w.row_bytes(), scales, offsets, w.num_groups};
  with_codes<V>(w, [&]<class Codes>() {
    multiply_tokens<V, Codes, kRows>(w, rows, x, {y.data + row, y.stride});
  });
}

/// Kernel::multiply.
template <class V>
void multiply(const Weights& w, const RowRange& rows, const Inputs& x, const Outputs& y,
              std::byte* scratch) {
  const int64_t end = rows.first + rows.count;
  int64_t row = rows.first;
  for (; row + kMaxRows <= end; row += kMaxRows) {
    multiply_rows<V, kMaxRows>(w, row, x, y, scratch);
  }
  for (; row < end; ++row) multiply_rows<V, 1>(w, row, x, y, scratch);
}

/// Nibbles come out of the registers as all even, then all odd elements of a block.
template <class V>
void order(const Weights& w, const float* x, float* ordered) {
  if (!reads_nibbles<V>(w)) {
    std::memcpy(ordered, x, static_cast<size_t>(w.in_features) * sizeof(float));
    return;
  }
  for (int64_t k = 0; k < w.in_features; k += 2 * V::kWidth) {
    for (int j = 0; j < V::kWidth; ++j) {
      ordered[k + j] = x[k + 2 * j];
      ordered[k + V::kWidth + j] = x[k + 2 * j + 1];
    }
  }
}

/// Kernel::dequantize.
template <class V>
void dequantize(const Weights& w, const Tile& tile, std::byte* scratch) {
  const int64_t groups = w.num_groups;
  auto* scales = reinterpret_cast<float*>(scratch);
  float* offsets = scales + groups;
  auto* bytes = reinterpret_cast<uint8_t*>(offsets + groups);
  for (int64_t i = 0; i < tile.rows.count; ++i) {
    const int64_t row = tile.rows.first + i;
    widen_scales<V>(w, row, scales, offsets);
    const uint8_t* codes = row_codes<V>(w, row, bytes);
    float* values = tile.data + i * tile.stride;
    dequantize_row<V>(w, codes, scales, offsets, values);
    for (int64_t k = w.in_features; k < tile.stride; ++k) values[k] = 0;
  }
}

/// One row, in the order of `order`.
template <class V, class Codes>
void fill_row(const Weights& w, const RowBlock& row, float* values) {
  const int64_t blocks = w.group_size / (Codes::kVectors * V::kWidth);
  const uint8_t* codes = row.codes;
  for (int64_t group = 0; group < w.num_groups; ++group) {
    const auto table = Codes::table(row.scales[group], row.offsets[group]);
    for (int64_t block = 0; block < blocks; ++block) {
      typename V::F decoded[Codes::kVectors];
      Codes::decode(codes, table, decoded);
      for (int v = 0; v < Codes::kVectors; ++v) V::store(decoded[v], values + v * V::kWidth);
      codes += Codes::kBytes;
      values += Codes::kVectors * V::kWidth;
    }
  }
}

/// Kernel::fill.
template <class V>
void fill(const Weights& w, const Tile& tile, std::byte* scratch) {
  if (!fuses<V>(w)) {
    dequantize<V>(w, tile, scratch);
    return;
  }
  auto* scales = reinterpret_cast<float*>(scratch);
  float* offsets = scales + w.num_groups;
  for (int64_t i = 0; i < tile.rows.count; ++i) {
    const int64_t row = tile.rows.first + i;
    float* values = tile.data + i * tile.stride;
    widen_scales<V>(w, row, scales, offsets);
    const RowBlock block{w.packed + row * w.row_bytes(), 0, scales, offsets, 0};
    with_codes<V>(w, [&]<class Codes>() { fill_row<V, Codes>(w, block, values); });
    for (int64_t k = w.in_features; k < tile.stride; ++k) values[k] = 0;
  }
}

/// y = x tile^T for kRows rows and kTokens tokens; all sums stay in registers.
template <class V, int kRows, int kTokens>
void multiply_dense(const float* rows, int64_t stride, const float* x, int64_t x_stride,
                    const Outputs& y) {
  typename V::F sums[kTokens][kRows];
  for (auto& token : sums) {
    for (auto& sum : token) sum = V::zero();
  }
  for (int64_t k = 0; k < stride; k += V::kWidth) {
    typename V::F values[kRows];
    for (int r = 0; r < kRows; ++r) values[r] = V::load(rows + r * stride + k);
    for (int t = 0; t < kTokens; ++t) {
      const auto input = V::load(x + t * x_stride + k);
      for (int r = 0; r < kRows; ++r) sums[t][r] = V::fma(values[r], input, sums[t][r]);
    }
  }
  for (int t = 0; t < kTokens; ++t) store_sums<V, kRows>(sums[t], y.data + t * y.stride);
}

/// All rows of a tile for kTokens tokens.
template <class V, int kTokens>
void multiply_dense_rows(const Tile& tile, const float* x, int64_t x_stride, const Outputs& y) {
  int64_t i = 0;
  for (; i + V::kTileRows <= tile.rows.count; i += V::kTileRows) {
    multiply_dense<V, V::kTileRows, kTokens>(tile.data + i * tile.stride, tile.stride, x, x_stride,
                                             {y.data + tile.rows.first + i, y.stride});
  }
  for (; i < tile.rows.count; ++i) {
    multiply_dense<V, 1, kTokens>(tile.data + i * tile.stride, tile.stride, x, x_stride,
                                  {y.data + tile.rows.first + i, y.stride});
  }
}

/// multiply_tile for whole runs of kTokens tokens from `t` on; returns the first that is left.
template <class V, int kTokens>
int64_t multiply_tile_from(int64_t t, const Tile& tile, const Inputs& x, const Outputs& y) {
  for (; t + kTokens <= x.tokens; t += kTokens) {
    multiply_dense_rows<V, kTokens>(tile, x.data + t * x.stride, x.stride,
                                    {y.data + t * y.stride, y.stride});
  }
  return t;
}

/// Kernel::multiply_tile.
template <class V>
void multiply_tile(const Tile& tile, const Inputs& x, const Outputs& y) {
  int64_t t = multiply_tile_from<V, V::kTileTokens>(0, tile, x, y);
  t = multiply_tile_from<V, 2>(t, tile, x, y);
  multiply_tile_from<V, 1>(t, tile, x, y);
}

/// The table row of instruction set V.
template <class V>
constexpr Kernel make_kernel(const char* name, bool (*runs_here)()) {
  return {name,        V::kFusedTokens, runs_here, fuses<V>,        order<V>,
          multiply<V>, dequantize<V>,   fill<V>,   multiply_tile<V>};
}

}  // namespace weft::quant::kernels
