#pragma once

#include <cstdint>
#include <string>

#include "weft/io/tensor_file.h"

namespace weft::models {

/// The sizes and constants of a decoder-only transformer, checked. Letters as in the docs: V
/// vocabulary, D width, N heads, K kv heads, H head dim, F ffn width.
struct ModelConfig {
  /// Family as the registry names it, e.g. "llama".
  std::string family;
  int64_t vocab_size = 0;
  int64_t width = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t ffn_width = 0;
  int64_t max_positions = 0;
  double norm_eps = 0;
  double rope_base = 10'000;
  /// The output head is the embedding.
  bool is_tied = false;
  bool has_attention_bias = false;
  bool has_mlp_bias = false;
};

/// Reads the configuration from a GGUF's keys or from config.json beside a safetensors file, and
/// checks every value before it is used. Throws FormatError naming the file and the key,
/// ConfigError for a family that weft does not know (lists the known ones).
ModelConfig read_config(const io::TensorFile& file);

/// Throws FormatError "<where>: config: …" unless all sizes are positive, within limits and fit
/// each other.
void check_config(const ModelConfig& config, const std::string& where);

}  // namespace weft::models
