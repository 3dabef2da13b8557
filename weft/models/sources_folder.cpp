#include <filesystem>
#include <nlohmann/json.hpp>

#include "weft/core/error.h"
#include "weft/core/file.h"
#include "weft/core/json.h"
#include "weft/models/sources.h"

namespace weft::models {
namespace {

using core::check;
using core::FormatError;
using core::Json;

constexpr uint64_t kMaxConfigBytes = 1 << 20;

int64_t integer(const Json& json, const char* key, const std::string& where) {
  return core::to_int64(core::require(json, key, where), where + ": " + key);
}

// Null counts as missing: Hugging Face writes it for "default".
const Json* present(const Json& json, const char* key, const std::string& where) {
  const Json* value = core::find(json, key, where);
  return value == nullptr || value->is_null() ? nullptr : value;
}

int64_t integer_or(const Json& json, const char* key, int64_t fallback, const std::string& where) {
  const Json* value = present(json, key, where);
  return value == nullptr ? fallback : core::to_int64(*value, where + ": " + key);
}

bool flag_or(const Json& json, const char* key, bool fallback, const std::string& where) {
  const Json* value = present(json, key, where);
  return value == nullptr ? fallback : core::to_bool(*value, where + ": " + key);
}

void check_rope_scaling(const Json& json, const std::string& where) {
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const Json* scaling = present(json, key, where);
    if (scaling == nullptr) continue;
    const Json* type = core::find(*scaling, "rope_type", where);
    if (type == nullptr) type = core::find(*scaling, "type", where);
    const std::string name = type == nullptr ? "default" : core::to_string(*type, where);
    check<core::ConfigError>(name == "default", where, ": rope scaling '", name,
                             "' is not supported; supported: default");
  }
}

double rope_base(const Json& json, const std::string& where) {
  const Json* base = present(json, "rope_theta", where);
  if (base == nullptr) {
    const Json* parameters = present(json, "rope_parameters", where);
    if (parameters != nullptr) base = present(*parameters, "rope_theta", where);
  }
  return base == nullptr ? 10'000.0 : core::to_double(*base, where + ": rope_theta");
}

}  // namespace

std::string folder_of(const io::TensorFile& file) {
  const std::filesystem::path path(file.path());
  if (std::filesystem::is_directory(path)) return path.string();
  return path.has_parent_path() ? path.parent_path().string() : ".";
}

ModelConfig config_from_folder(const io::TensorFile& file) {
  const std::string where = folder_of(file) + "/config.json";
  const Json json = core::parse_json(core::read_text_file(where, kMaxConfigBytes), where);
  ModelConfig config;
  config.family = core::to_string(core::require(json, "model_type", where), where);
  check<core::ConfigError>(config.family == "llama", where, ": model_type '", config.family,
                           "' is not supported; supported: llama");
  check_rope_scaling(json, where);
  config.vocab_size = integer(json, "vocab_size", where);
  config.width = integer(json, "hidden_size", where);
  config.num_layers = integer(json, "num_hidden_layers", where);
  config.num_heads = integer(json, "num_attention_heads", where);
  config.num_kv_heads = integer_or(json, "num_key_value_heads", config.num_heads, where);
  check<FormatError>(config.num_heads >= 1, where, ": num_attention_heads is ", config.num_heads,
                     ", expected at least 1");
  config.head_dim = integer_or(json, "head_dim", config.width / config.num_heads, where);
  config.ffn_width = integer(json, "intermediate_size", where);
  config.max_positions = integer_or(json, "max_position_embeddings", 2048, where);
  config.norm_eps = core::to_double(core::require(json, "rms_norm_eps", where), where);
  config.rope_base = rope_base(json, where);
  config.is_tied = flag_or(json, "tie_word_embeddings", false, where);
  config.has_attention_bias = flag_or(json, "attention_bias", false, where);
  config.has_mlp_bias = flag_or(json, "mlp_bias", false, where);
  return config;
}

}  // namespace weft::models
