#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "weft/core/dtype.h"
#include "weft/quant/panels/panel_layout.h"

namespace weft::quant {

/// Whether blocks of the type, of rows of `in` columns, can be put into panels as they are read:
/// those of GGUF, in whole blocks. IQ types and MXFP4 take 4 bits there and a table of codes.
bool has_gguf_panels(core::Dtype dtype, int64_t in);

/// Panels for a matrix [out, in] of such blocks, to be filled by write_gguf_rows. Throws ShapeError
/// unless has_gguf_panels(dtype, in), out is positive and activation_bits are 8 or 16.
PanelMatrix empty_gguf_panels(core::Dtype dtype, int64_t out, int64_t in, int64_t activation_bits);

/// Writes the rows from `first` on, whose blocks lie row after row as in the file: the values of
/// from_gguf_blocks(...), without a copy between. Throws ShapeError unless `blocks` are
/// whole rows of the matrix.
void write_gguf_rows(core::Dtype dtype, std::span<const std::byte> blocks, int64_t first,
                     PanelMatrix& to);

}  // namespace weft::quant
