#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "weft/io/matrix_format.h"
#include "weft/io/tensor_file.h"

namespace weft::models {

/// How config.json says that matrices are quantized.
struct StatedScheme {
  /// "affine", "mxfp4", "mxfp8", "nvfp4", "awq", "gptq"; "none" for a matrix that is excepted.
  std::string mode;
  int64_t bits = 0;
  /// Inputs per quant group; 0: all of a row.
  int64_t group_size = 0;

  bool operator==(const StatedScheme&) const = default;
};

/// `quantization` (MLX) or `quantization_config` (AWQ, GPTQ) of config.json. What is so is inferred
/// from the tensors (io::matrix_format); this is checked against it, and says what no tensor shows.
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
};

/// Reads it from config.json in the file's folder; nothing if it has none, or for a GGUF. Throws
/// FormatError for wrong values, ConfigError for a method that weft does not know (lists those it
/// knows) and for act-order.
std::optional<QuantizationConfig> read_quantization_config(const io::TensorFile& file);

/// Throws FormatError if the tensors of the matrix at `path` show another scheme than is stated.
void check_stated(const QuantizationConfig& config, const std::string& path,
                  const io::MatrixFormat& format);

}  // namespace weft::models
