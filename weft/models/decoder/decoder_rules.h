#pragma once

#include "weft/io/tensor_file.h"
#include "weft/models/config/config.h"
#include "weft/models/load/weight_rules.h"

namespace weft::models {

/// How a decoder is cut: q, k, v, gate, up and the vocabulary by rows, o and down by columns, each
/// expert like a feed-forward layer; norms and routers whole. Names and row order follow the kind
/// of file. Biases are taken where the file has them and required where the configuration does.
WeightRules decoder_rules(const ModelConfig& config, const io::TensorFile& file);

}  // namespace weft::models
