#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "weft/io/matrices/matrix_format.h"
#include "weft/io/tensor_file.h"

namespace weft::models {

/// How config.json says that matrices are quantized.
struct StatedScheme {
  /// "affine", "mxfp4", "mxfp8", "nvfp4", "awq", "gptq", "fp8", "int"; "none" for a matrix that is
  /// excepted.
  std::string mode;
  /// 0: what the tensors show.
  int64_t bits = 0;
  /// Inputs per quant group; 0: all of a row.
  int64_t group_size = 0;

  bool operator==(const StatedScheme&) const = default;
};

/// Rows and columns of a matrix that share a scale; 0: all of them.
struct ScaleBlock {
  int64_t rows = 0;
  int64_t columns = 0;

  bool operator==(const ScaleBlock&) const = default;
};

/// `quantization` (MLX) or `quantization_config` (all others) of config.json. What is so is
/// inferred from the tensors (io::matrix_format); this is checked against it, and says what no
/// tensor shows.
struct QuantizationConfig {
  /// Begins messages: the path and key.
  std::string where;
  StatedScheme all;
  /// MLX: by the matrix's path ("model.layers.0.mlp.up_proj").
  std::map<std::string, StatedScheme> overrides;
  /// GPTQ: zero points are stored less one ("checkpoint_format" is not "gptq_v2").
  bool stores_zero_less_one = false;
  /// GPTQ: every zero point is in the middle.
  bool is_symmetric = false;
  /// GPTQ: columns belong to quant groups in any order ("desc_act").
  bool is_ordered = false;
  /// Numbers of 8 bits with scales, which the counts of scales need not show.
  std::optional<ScaleBlock> scale_block;
};

/// Reads it from config.json in the file's folder; nothing if it has none, or for a GGUF. Throws
/// FormatError for wrong values, ConfigError for a method that weft does not know (lists those it
/// knows).
std::optional<QuantizationConfig> read_quantization_config(const io::TensorFile& file);

/// Throws FormatError if the tensors of the matrix show another scheme than is stated, and sets in
/// `format` what only config.json says.
void take_stated(const QuantizationConfig& config, const io::MatrixRef& matrix,
                 io::MatrixFormat& format);

}  // namespace weft::models
