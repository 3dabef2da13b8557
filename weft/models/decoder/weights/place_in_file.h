#pragma once

#include "weft/io/tensor_file.h"
#include "weft/models/config/config.h"
#include "weft/models/decoder/decoder_names.h"
#include "weft/models/load/weight_rules.h"

namespace weft::models {

/// A weight's names in the model and in the file, its shape, and how it is taken out of a tensor
/// that holds others as well; nothing about how it is cut. Throws ConfigError for experts in one
/// tensor that are packed.
WeightRule place_in_file(const ModelConfig& config, const io::TensorFile& file,
                         const PartPlace& place);

}  // namespace weft::models
