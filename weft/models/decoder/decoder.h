#pragma once

#include <memory>

#include "weft/dist/group.h"
#include "weft/models/load/stage.h"
#include "weft/models/load/weight_source.h"
#include "weft/models/model.h"

namespace weft::models {

/// A Llama-like decoder cut over `group`: Llama, Mistral, Qwen and their kind, which differ by
/// configuration alone; two all-reduces per layer, one for the embedding, one gather for the
/// logits. Source: Touvron et al. 2023, arXiv:2302.13971; cut as in Shoeybi et al. 2019.
std::shared_ptr<CausalLM> make_decoder(const ModelConfig& config, const WeightSource& source,
                                       const Stage& stage, const dist::Group& group);

}  // namespace weft::models
