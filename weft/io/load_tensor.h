#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "weft/io/matrices/matrix_format.h"
#include "weft/io/views/read_view.h"
#include "weft/quant/panels/panel_layout.h"
#include "weft/quant/quantized_matrix.h"

namespace weft::io {

/// A matrix in memory: floating, or quantized and kept so.
using LoadedMatrix = std::variant<at::Tensor, quant::QuantizedMatrix>;

/// Which elements of a matrix a rank wants: rows and columns of the whole, in the model's order.
struct MatrixSlice {
  std::vector<shard::Range> rows;
  std::vector<shard::Range> columns;
};

/// One rank's part of a matrix: how it is stored, and the recipes of its parts in
/// MatrixFormat::parts' order. They hold `wanted` moved outward to whole units (`covering`).
struct MatrixSource {
  const MatrixFormat& format;
  std::vector<const ShardRecipe*> parts;
  const MatrixSlice& wanted;
};

/// Reads and decodes it. Dense matrices are converted to `dense_dtype`, to which products of
/// kScaledFloats are rounded; quantized ones stay so, and what was read beside `wanted` is cut
/// away, with quant groups divided where that is needed: lossless. Throws FormatError, IoError,
/// ShapeError (edges that cut a run of 8 packed elements).
LoadedMatrix load_matrix(const TensorFile& file, const MatrixSource& matrix,
                         at::ScalarType dense_dtype, ReadStats* stats = nullptr);

/// Reads blocks of a GGUF file straight into panels (quant::has_gguf_panels); nullopt, and nothing
/// is read, where the matrix is stored otherwise or its slice cuts blocks. Throws as load_matrix.
std::optional<quant::PanelMatrix> load_panels(const TensorFile& file, const MatrixSource& matrix,
                                              int64_t activation_bits, ReadStats* stats = nullptr);

/// Reads a floating tensor of any shape, converted to `dtype`. Throws FormatError for other types.
at::Tensor load_tensor(const TensorFile& file, const ShardRecipe& recipe, at::ScalarType dtype,
                       ReadStats* stats = nullptr);
/// The same of a whole tensor of the file.
at::Tensor load_tensor(const TensorFile& file, const std::string& name, at::ScalarType dtype,
                       ReadStats* stats = nullptr);

}  // namespace weft::io
