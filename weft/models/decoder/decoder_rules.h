#pragma once

#include "weft/io/tensor_file.h"
#include "weft/models/config/config.h"
#include "weft/models/load/weight_rules.h"

namespace weft::models {

/// How a decoder is cut: q, k, v, gate, up and the vocabulary by rows, o and down by columns, each
/// expert like a feed-forward layer; norms and routers whole. Names and row order follow the kind
/// of file. Biases are taken where the file has them and required where the configuration does.
WeightRules decoder_rules(const ModelConfig& config, const io::TensorFile& file);

/// For sums with one order: features of feed-forward layers and channels are cut between blocks of
/// quant::kernels::kBlockColumns also where plain numbers could be cut anywhere. Changes no dim
/// whose blocks don't come out even.
void cut_between_blocks(WeightRules& rules);

}  // namespace weft::models
