#pragma once

#include <cstdint>

#include "weft/quant/kernels/panel_kernel.h"
#include "weft/quant/kernels/streams.h"

/// The loops around an instruction set's products. All of it is templates on Loops, a type in the
/// unnamed namespace of the file that includes this: nothing is shared between files. Loops has
/// multiply_tile<kNumbers, kGroups, kIs16, kIsShared>(w, panel, x, first, y): one panel for the
/// tile of tokens that begins with `first`; and multiply_run<kNumbers, kGroups, kIs16, kIsShared,
/// kPanels>( w, run, x, y): kPanels panels for a single token.
namespace weft::quant::kernels {

/// Panels that a single token reads at a time.
inline constexpr int kTokenStreams = 4;

/// A panel stays in the first level cache for all tokens.
template <class Loops, PanelNumbers kNumbers, int kGroups, bool kIs16, bool kIsShared>
void multiply_all(const Panels& w, int64_t first, int64_t count, const RoundedInputs& x,
                  const PanelOutputs& y) {
  if (x.tokens == 1) {
    return for_streams<kTokenStreams>(
        w, first, count, [&]<int kPanels>(const PanelRun& run, int64_t row) {
          Loops::template multiply_run<kNumbers, kGroups, kIs16, kIsShared, kPanels>(
              w, run, x, {y.data + row, y.stride});
        });
  }
  const int64_t bytes = w.panel_bytes();
  const uint8_t* panel = w.data + first * bytes;
  for (int64_t i = 0; i < count; ++i, panel += bytes) {
    for (int64_t t = 0; t < x.tokens; t += kTileTokens) {
      Loops::template multiply_tile<kNumbers, kGroups, kIs16, kIsShared>(
          w, panel, x, t, {y.data + i * kPanelRows, y.stride});
    }
  }
}

/// The same for any scales; kIsShared says that they are kInt8.
template <class Loops, PanelNumbers kNumbers, bool kIs16>
void multiply_numbers(const Panels& w, int64_t first, int64_t count, const RoundedInputs& x,
                      const PanelOutputs& y) {
  if (w.form.scales == PanelScales::kInt8) {
    return w.form.groups == 1
               ? multiply_all<Loops, kNumbers, 1, kIs16, true>(w, first, count, x, y)
               : multiply_all<Loops, kNumbers, 2, kIs16, true>(w, first, count, x, y);
  }
  return w.form.groups == 1 ? multiply_all<Loops, kNumbers, 1, kIs16, false>(w, first, count, x, y)
                            : multiply_all<Loops, kNumbers, 2, kIs16, false>(w, first, count, x, y);
}

/// The same for weights of any form.
template <class Loops, bool kIs16>
void multiply_any(const Panels& w, int64_t first, int64_t count, const RoundedInputs& x,
                  const PanelOutputs& y) {
  switch (w.form.numbers) {
    case PanelNumbers::kCodes2:
      return multiply_numbers<Loops, PanelNumbers::kCodes2, kIs16>(w, first, count, x, y);
    case PanelNumbers::kCodes3:
      return multiply_numbers<Loops, PanelNumbers::kCodes3, kIs16>(w, first, count, x, y);
    case PanelNumbers::kCodes4:
      return multiply_numbers<Loops, PanelNumbers::kCodes4, kIs16>(w, first, count, x, y);
    case PanelNumbers::kCodes5:
      return multiply_numbers<Loops, PanelNumbers::kCodes5, kIs16>(w, first, count, x, y);
    case PanelNumbers::kCodes6:
      return multiply_numbers<Loops, PanelNumbers::kCodes6, kIs16>(w, first, count, x, y);
    case PanelNumbers::kTable3:
      return multiply_numbers<Loops, PanelNumbers::kTable3, kIs16>(w, first, count, x, y);
    case PanelNumbers::kTable4:
      return multiply_numbers<Loops, PanelNumbers::kTable4, kIs16>(w, first, count, x, y);
    default:
      return multiply_numbers<Loops, PanelNumbers::kCodes8, kIs16>(w, first, count, x, y);
  }
}

/// PanelKernel::multiply.
template <class Loops>
void multiply_panels(const Panels& w, int64_t first, int64_t count, const RoundedInputs& x,
                     const PanelOutputs& y) {
  return x.lower_codes != nullptr ? multiply_any<Loops, true>(w, first, count, x, y)
                                  : multiply_any<Loops, false>(w, first, count, x, y);
}

}  // namespace weft::quant::kernels
