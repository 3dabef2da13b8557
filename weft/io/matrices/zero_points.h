#pragma once

#include <ATen/core/Tensor.h>

#include "weft/io/matrices/matrix_format.h"
#include "weft/io/views/read_view.h"

namespace weft::io {

/// The zero points of a matrix of compressed-tensors' integers that has them beside it
/// (MatrixFormat::beside), for the scales of one recipe, in any order of rows: those of a scale
/// follow from its place in the file. Reads all of the matrix's, of which words hold those of
/// neighbouring rows. uint8, of the shape of the scales, as codes that are never negative. Throws
/// ConfigError for a recipe that computes or has scales of other matrices, IoError.
at::Tensor zeros_of_scales(const TensorFile& file, const MatrixFormat& format,
                           const ShardRecipe& scales, ReadStats* stats);

}  // namespace weft::io
