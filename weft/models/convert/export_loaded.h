#pragma once

#include <cstdint>
#include <string>

#include "weft/io/dtype.h"
#include "weft/models/model.h"

namespace weft::models {

/// Whether a folder of the family has the parameters of a model that trains and nothing else, each
/// as a tensor of its name: none that is fused or stacked, and no numbers that don't train.
bool has_parameters_alone(const ModelConfig& config);

/// Writes the weights of a model that this rank holds whole to the folder `folder`, as safetensors
/// under Hugging Face's names; quantized ones as the numbers that they stand for. `dtype` is kF32
/// or kBF16. Throws IoError.
void export_loaded(CausalLM& model, io::Dtype dtype, uint64_t max_file_bytes,
                   const std::string& folder);

}  // namespace weft::models
