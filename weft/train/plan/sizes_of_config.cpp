#include "weft/train/plan/sizes_of_config.h"

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

}  // namespace weft::train
