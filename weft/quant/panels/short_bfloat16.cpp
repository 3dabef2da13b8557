#include "weft/quant/panels/short_bfloat16.h"

#include <ATen/core/Tensor.h>
#include <c10/util/BFloat16.h>

#include <algorithm>
#include <numeric>

namespace weft::quant {
namespace {

using kernels::kPanelRows;
using kernels::kShortColumns;
using kernels::kShortNumbers;

// Where a panel has a number, and where that panel as one of bfloat16 has it.
struct ShortPlace {
  int64_t lower, upper, unpacked;
  int shift;

  ShortPlace(int64_t row, int64_t column) {
    const int64_t pair = column % kShortColumns / 2, within = 2 * row + column % 2;
    const int64_t byte = within / 8 * 16 + pair % 2 * 8 + within % 8;
    const int64_t start = column / kShortColumns * kernels::kShortBytes;
    lower = start + pair / 2 * (kShortNumbers / 2) + byte;
    upper = start + kShortNumbers + byte;
    shift = pair < 2 ? 0 : 4;
    unpacked = column / 2 * (2 * kPanelRows) + within;
  }
};

// What a sample of numbers has of each upper byte.
std::array<int64_t, 256> count_upper_bytes(const at::Tensor& w) {
  // Enough numbers to see a byte that one in a thousand has, and one in so many of large matrices.
  constexpr int64_t kLeast = 1 << 15, kShare = 64;
  const auto* bits = static_cast<const uint16_t*>(w.const_data_ptr());
  const int64_t sample = std::max(kLeast, w.numel() / kShare);
  const int64_t step = std::max<int64_t>(1, w.numel() / sample);
  // Neighbours are counted apart: a count that has just changed takes a while to be read again.
  std::array<std::array<int64_t, 256>, 4> counts{};
  for (int64_t row = 0; row < w.size(0); row += step) {
    const auto* numbers = bits + row * w.size(1);
    for (int64_t i = 0; i < w.size(1); ++i) ++counts[static_cast<size_t>(i % 4)][numbers[i] >> 8];
  }
  for (size_t i = 0; i < 256; ++i) counts[0][i] += counts[1][i] + counts[2][i] + counts[3][i];
  return counts[0];
}

// Where each of the bytes stands among them.
kernels::ShortIndices indices_of(const std::array<uint8_t, 16>& bytes) {
  kernels::ShortIndices made{};
  for (auto& lower : made.by_halves) std::ranges::fill(lower, kernels::ShortIndices::kNone);
  for (size_t i = 0; i < bytes.size(); ++i) {
    made.by_halves[bytes[i] >> 4][bytes[i] & 15] = static_cast<uint8_t>(i);
    const auto half = static_cast<uint8_t>(bytes[i] >> 4);
    const std::span known(std::data(made.upper_halves), static_cast<size_t>(made.num_halves));
    if (std::ranges::find(known, half) == known.end()) made.upper_halves[made.num_halves++] = half;
  }
  return made;
}

// Where a panel has an exception.
struct Position {
  explicit Position(const ShortBFloat16::Exception& each)
      : row(each.place % (2 * kPanelRows) / 2),
        column(each.place / (2 * kPanelRows) * 2 + each.place % 2) {}
  int64_t row, column;
};

float value_of(int bits) {
  return c10::BFloat16(static_cast<uint16_t>(bits), c10::BFloat16::from_bits());
}

}  // namespace

std::optional<UpperBytes> UpperBytes::choose(const at::Tensor& w) {
  const auto counts = count_upper_bytes(w);
  std::array<uint8_t, 256> order{};
  std::iota(order.begin(), order.end(), uint8_t{0});
  std::ranges::stable_sort(order.begin() + 1, order.end(), std::ranges::greater(),
                           [&](uint8_t byte) { return counts[byte]; });
  UpperBytes chosen;
  int64_t covered = 0;
  for (size_t i = 0; i < chosen.bytes.size(); ++i) {
    chosen.bytes[i] = order[i];
    covered += counts[order[i]];
  }
  chosen.indices = indices_of(chosen.bytes);
  const int64_t all = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  if ((all - covered) * 256 > all) return std::nullopt;
  return chosen;
}

void ShortBFloat16::write_columns(const WrittenRows& from, int64_t first, uint8_t* panel,
                                  std::vector<Exception>& exceptions) const {
  std::fill_n(panel + first / kShortColumns * kernels::kShortBytes, kernels::kShortBytes,
              uint8_t{0});
  for (int64_t column = first; column < first + kShortColumns; ++column) {
    for (int64_t row = 0; row < from.count; ++row) {
      const uint16_t number = from.bits[row * from.stride + column];
      const uint8_t upper = upper_.indices.by_halves[number >> 12][number >> 8 & 15];
      const ShortPlace place(row, column);
      if (upper == kernels::ShortIndices::kNone) {
        exceptions.push_back({static_cast<uint32_t>(place.unpacked), number});
        continue;
      }
      panel[place.lower] = static_cast<uint8_t>(number);
      panel[place.upper] |= static_cast<uint8_t>(upper << place.shift);
    }
  }
}

std::vector<ShortBFloat16::Exception> ShortBFloat16::write(const kernels::PanelKernel& kernel,
                                                           const at::Tensor& w, int64_t index,
                                                           uint8_t* panel) const {
  const int64_t in = w.size(1), first = index * kPanelRows, runs = in / kShortColumns;
  const auto* bits = static_cast<const uint16_t*>(w.const_data_ptr()) + first * in;
  const WrittenRows rows{bits, in, std::min(kPanelRows, w.size(0) - first)};
  const bool has_kernel = kernel.pack_short != nullptr && rows.count == kPanelRows;
  std::vector<Exception> exceptions;
  for (int64_t run = 0; run < runs;) {
    if (has_kernel) {
      run += kernel.pack_short(bits + run * kShortColumns, in, upper_.indices, runs - run,
                               panel + run * kernels::kShortBytes);
      if (run == runs) break;
    }
    write_columns(rows, run++ * kShortColumns, panel, exceptions);
  }
  return exceptions;
}

void ShortBFloat16::keep(const std::vector<std::vector<Exception>>& by_panel) {
  for (const auto& each : by_panel) {
    first_exceptions_.push_back(static_cast<int64_t>(exceptions_.size()));
    exceptions_.insert(exceptions_.end(), each.begin(), each.end());
  }
  first_exceptions_.push_back(static_cast<int64_t>(exceptions_.size()));
}

std::span<const ShortBFloat16::Exception> ShortBFloat16::exceptions_of(int64_t panel) const {
  const auto* first = first_exceptions_.data() + panel;
  return std::span(exceptions_)
      .subspan(static_cast<size_t>(first[0]), static_cast<size_t>(first[1] - first[0]));
}

void ShortBFloat16::read(const kernels::PanelKernel& kernel, const kernels::Panels& w,
                         int64_t index, uint16_t* to) const {
  kernel.unpack_short(w, index, to);
  for (const Exception& each : exceptions_of(index)) to[each.place] = each.bits;
}

void ShortBFloat16::add_exceptions(int64_t first, int64_t count, const kernels::DenseInputs& x,
                                   const kernels::PanelOutputs& y) const {
  for (int64_t i = 0; i < count; ++i) {
    for (const Exception& each : exceptions_of(first + i)) {
      const Position at(each);
      for (int64_t t = 0; t < x.tokens; ++t) {
        y.data[t * y.stride + i * kPanelRows + at.row] +=
            x.data[t * x.stride + at.column] * value_of(each.bits);
      }
    }
  }
}

void ShortBFloat16::read_row(const kernels::Panels& w, int64_t row, float* to) const {
  const int64_t index = row / kPanelRows, in = w.num_blocks * kernels::kBlockColumns;
  const uint8_t* panel = w.data + index * w.panel_bytes();
  for (int64_t column = 0; column < in; ++column) {
    const ShortPlace place(row % kPanelRows, column);
    const int upper = upper_.bytes[(panel[place.upper] >> place.shift) & 15];
    to[column] = value_of(upper << 8 | panel[place.lower]);
  }
  for (const Exception& each : exceptions_of(index)) {
    const Position at(each);
    if (at.row == row % kPanelRows) to[at.column] = value_of(each.bits);
  }
}

int64_t ShortBFloat16::num_bytes() const {
  return static_cast<int64_t>(exceptions_.size() * sizeof(Exception) +
                              first_exceptions_.size() * sizeof(int64_t));
}

}  // namespace weft::quant
