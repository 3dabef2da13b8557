#pragma once

#include <array>
#include <cstdint>

#include "weft/quant/kernels/panel_kernel.h"

namespace weft::quant {

/// A block's codes of one row, column after column.
using RowCodes = std::array<uint8_t, kernels::kBlockColumns>;

/// kBlockColumns codes of `bits` bits out of AffineTensor's stream.
RowCodes read_affine_codes(const uint8_t* packed, int64_t bits);

/// A row's codes of a block of a panel, as kernels::Panels says, or of tables its indices; `steps`
/// are the block's codes from the row's first one on.
RowCodes read_panel_codes(const uint8_t* steps, kernels::PanelNumbers numbers);
/// Writes them; they must fit in the bits of `numbers`.
void write_panel_codes(const RowCodes& codes, kernels::PanelNumbers numbers, uint8_t* steps);

}  // namespace weft::quant
