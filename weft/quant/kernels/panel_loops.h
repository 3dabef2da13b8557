#pragma once

#include <cstdint>

#include "weft/quant/kernels/panel_kernel.h"

/// The loops around an instruction set's products. All of it is templates on Loops, a type in the
/// unnamed namespace of the file that includes this: nothing is shared between files. Loops has
/// multiply_tile<kBits, kIsSymmetric, kIs16>(panel, num_blocks, x, first, y): one panel for the
/// tile of tokens that begins with `first`.
namespace weft::quant::kernels {

/// A panel stays in the first level cache for all tokens.
template <class Loops, int kBits, bool kIsSymmetric, bool kIs16>
void multiply_all(const Panels& w, int64_t first, int64_t count, const RoundedInputs& x,
                  const PanelOutputs& y) {
  const uint8_t* panel = w.data + first * w.panel_bytes();
  for (int64_t i = 0; i < count; ++i, panel += w.panel_bytes()) {
    for (int64_t t = 0; t < x.tokens; t += kTileTokens) {
      Loops::template multiply_tile<kBits, kIsSymmetric, kIs16>(
          panel, w.num_blocks, x, t, {y.data + i * kPanelRows, y.stride});
    }
  }
}

/// The same for weights of any form.
template <class Loops, bool kIs16>
void multiply_any(const Panels& w, int64_t first, int64_t count, const RoundedInputs& x,
                  const PanelOutputs& y) {
  if (w.bits == 4) {
    return w.is_symmetric ? multiply_all<Loops, 4, true, kIs16>(w, first, count, x, y)
                          : multiply_all<Loops, 4, false, kIs16>(w, first, count, x, y);
  }
  return w.is_symmetric ? multiply_all<Loops, 8, true, kIs16>(w, first, count, x, y)
                        : multiply_all<Loops, 8, false, kIs16>(w, first, count, x, y);
}

/// PanelKernel::multiply.
template <class Loops>
void multiply_panels(const Panels& w, int64_t first, int64_t count, const RoundedInputs& x,
                     const PanelOutputs& y) {
  return x.lower_codes != nullptr ? multiply_any<Loops, true>(w, first, count, x, y)
                                  : multiply_any<Loops, false>(w, first, count, x, y);
}

}  // namespace weft::quant::kernels
