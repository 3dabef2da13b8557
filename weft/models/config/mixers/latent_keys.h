#pragma once

namespace weft::models {

/// Latent attention in config.json: dims of a head's parts.
inline constexpr const char* kPlainDimFolderKey = "qk_nope_head_dim";
inline constexpr const char* kRopeDimFolderKey = "qk_rope_head_dim";
inline constexpr const char* kValueDimFolderKey = "v_head_dim";
inline constexpr const char* kKvRankFolderKey = "kv_lora_rank";
inline constexpr const char* kQueryRankFolderKey = "q_lora_rank";
inline constexpr const char* kInterleaveFolderKey = "rope_interleave";
/// And in GGUF. Newer files have a head's dims in keys of their own, and in the usual ones those of
/// the latent.
inline constexpr const char* kKvRankGgufKey = "attention.kv_lora_rank";
inline constexpr const char* kQueryRankGgufKey = "attention.q_lora_rank";
inline constexpr const char* kHeadDimGgufKey = "attention.key_length";
inline constexpr const char* kValueDimGgufKey = "attention.value_length";
inline constexpr const char* kOwnHeadDimGgufKey = "attention.key_length_mla";
inline constexpr const char* kOwnValueDimGgufKey = "attention.value_length_mla";
/// Of RopeScaling::mscale and mscale_all_dim, which it takes for equal; where attention is latent,
/// times a factor, which is that of float32.
inline constexpr const char* kYarnMultiplierGgufKey = "rope.scaling.yarn_log_multiplier";
inline constexpr double kLatentYarnMultiplier = 0.1F;

}  // namespace weft::models
