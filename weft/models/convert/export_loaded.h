#pragma once

#include <cstdint>
#include <string>

#include "weft/io/dtype.h"
#include "weft/models/model.h"

namespace weft::models {

/// Writes the weights of a model that this rank holds whole to the folder `folder`, as safetensors
/// under Hugging Face's names; quantized ones as the numbers that they stand for. `dtype` is kF32
/// or kBF16. Throws IoError.
void export_loaded(CausalLM& model, io::Dtype dtype, uint64_t max_file_bytes,
                   const std::string& folder);

}  // namespace weft::models
