#include <c10/util/Half.h>

#include <cstring>

#include "weft/quant/kernels/dense_loops.h"

namespace weft::quant::kernels {
namespace {

struct Plain {
  using F = float __attribute__((vector_size(16)));
  using U = uint32_t __attribute__((vector_size(16)));
  static constexpr int kTokens = 1, kStreams = 1;

  static F widen(const uint8_t* halves) {
    F values;
    for (int i = 0; i < 4; ++i) {
      uint16_t half = 0;
      std::memcpy(&half, halves + 2 * i, sizeof(half));
      values[i] = c10::Half(half, c10::Half::from_bits());
    }
    return values;
  }

  using Table = const uint8_t*;
  static Table table_of(const uint8_t* upper_bytes) { return upper_bytes; }
  static void unpack(const uint8_t* from, Table table, U (&pairs)[4]) {
    constexpr size_t kLane = sizeof(U);
    for (size_t i = 0; i < 2 * kLane; ++i) {
      const bool is_right = i >= kLane;
      const uint8_t both = from[kShortNumbers + i % kLane];
      const int upper = table[is_right ? both >> 4 : both & 15];
      const uint8_t lower = from[is_right ? kShortNumbers / 2 + i % kLane : i];
      const auto number = static_cast<uint16_t>(upper << 8 | lower);
      std::memcpy(reinterpret_cast<uint8_t*>(pairs) + 2 * i, &number, sizeof(number));
    }
  }
};

}  // namespace

void multiply_dense_plain(const Panels& w, int64_t first, int64_t count, const DenseInputs& x,
                          const PanelOutputs& y) {
  multiply_dense<Plain>(w, first, count, x, y);
}

void unpack_short_plain(const Panels& w, int64_t panel, uint16_t* to) {
  unpack_short<Plain>(w, panel, to);
}

}  // namespace weft::quant::kernels
