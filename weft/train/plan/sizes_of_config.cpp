#include "weft/train/plan/sizes_of_config.h"

#include "weft/models/config/families.h"

namespace weft::train {

ModelSizes sizes_of(const models::ModelConfig& config) {
  ModelSizes sizes;
  sizes.vocab_size = config.vocab_size;
  sizes.hidden_size = config.width;
  sizes.num_layers = config.num_layers;
  sizes.num_heads = config.num_heads;
  sizes.num_kv_heads = config.num_kv_heads;
  sizes.head_dim = config.head_dim;
  sizes.intermediate_size = config.ffn_width;
  sizes.is_tied = config.is_tied;
  sizes.has_qkv_bias = config.has_qkv_bias;
  sizes.has_head_norms = config.head_norms == models::HeadNorms::kEachHead;
  sizes.has_norms_over_heads = config.head_norms == models::HeadNorms::kAllHeads;
  sizes.has_norms_before_and_after = config.norm_placement == models::NormPlacement::kBoth;
  return sizes;
}

models::ModelConfig new_model_config(const ModelSection& model, int64_t vocab_size) {
  models::ModelConfig config;
  config.family = model.family;
  config.vocab_size = model.vocab_size == 0 ? vocab_size : model.vocab_size;
  config.width = model.hidden_size;
  config.num_layers = model.num_layers;
  config.num_heads = model.num_heads;
  config.num_kv_heads = model.num_kv_heads;
  config.head_dim = model.head_dim;
  config.ffn_width = model.intermediate_size;
  config.max_positions = model.max_positions;
  config.norm_eps = model.norm_eps;
  config.rope_base = model.rope_base;
  config.is_tied = model.tied;
  models::take_family_traits(config);
  return config;
}

}  // namespace weft::train
