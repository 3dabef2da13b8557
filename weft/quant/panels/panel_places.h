#pragma once

#include <cstdint>

#include "weft/quant/kernels/panel_kernel.h"
#include "weft/quant/panels/panel_layout.h"

namespace weft::quant {

/// How many panels `rows` rows take; the last may not be full.
constexpr int64_t num_panels(int64_t rows) {
  return (rows + kernels::kPanelRows - 1) / kernels::kPanelRows;
}

/// Where a block of codes has a row's first scale, first offset and codes, in bytes.
struct BlockRow {
  BlockRow(const kernels::PanelForm& form, int64_t row)
      : scale_size(form.scale_bytes() / kernels::kPanelRows),
        scale(scale_size * row),
        offset(form.scale_bytes() + scale_size * row),
        codes(form.header_bytes() + 4 * row) {}
  int64_t scale_size, scale, offset, codes;
};

/// What panels of codes are made of: codes of `bits` bits, `group_size` of which share a scale and,
/// where they have some, an offset.
struct CodedNumbers {
  int64_t bits = 0;
  int64_t group_size = 0;
  bool has_offsets = false;
  kernels::PanelScales scales = kernels::PanelScales::kFloat16;
  /// 16 codes that indices of so many bits stand for (PanelForm::table), or null.
  const uint8_t* table = nullptr;
  int64_t index_bits = 4;
};

/// The form that holds them with the fewest bits.
kernels::PanelForm coded_form(const CodedNumbers& numbers);

/// Memory for a matrix [out, in] of the form, `in` whole blocks; rows beyond `out` are zeros.
PanelMatrix empty_panels(int64_t out, int64_t in, const kernels::PanelForm& form);

}  // namespace weft::quant
