#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

#include "weft/io/tensor_file.h"
#include "weft/models/convert/export.h"

namespace weft::models {

/// Writes the model as a GGUF file that llama.cpp reads: matrices in `dtype` (without it as they
/// are stored, quantized ones in float16), vectors in float32, rows in GGUF's order, the tokenizer
/// and the chat template in its keys. One tensor is in memory at a time. Throws ConfigError for a
/// family or a tokenizer that it has no names for; FormatError, IoError.
void export_gguf(const io::TensorFile& file, std::optional<at::ScalarType> dtype,
                 const std::string& path, const ExportProgress& progress);

}  // namespace weft::models
