#include <c10/util/Half.h>

#include <cstring>

#include "weft/quant/kernels/dense_loops.h"

namespace weft::quant::kernels {
namespace {

struct Plain {
  using F = float __attribute__((vector_size(16)));
  using U = uint32_t __attribute__((vector_size(16)));
  static constexpr int kTokens = 1;

  static F widen(const uint8_t* halves) {
    F values;
    for (int i = 0; i < 4; ++i) {
      uint16_t half = 0;
      std::memcpy(&half, halves + 2 * i, sizeof(half));
      values[i] = c10::Half(half, c10::Half::from_bits());
    }
    return values;
  }
};

}  // namespace

void multiply_dense_plain(const Panels& w, int64_t first, int64_t count, const DenseInputs& x,
                          const PanelOutputs& y) {
  multiply_dense<Plain>(w, first, count, x, y);
}

}  // namespace weft::quant::kernels
