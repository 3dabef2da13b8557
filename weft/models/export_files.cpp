#include <algorithm>
#include <nlohmann/json.hpp>

#include "weft/core/atomic_file.h"
#include "weft/core/error.h"
#include "weft/core/file.h"
#include "weft/core/json.h"
#include "weft/io/tensor_folder_writer.h"
#include "weft/models/config.h"
#include "weft/models/export.h"
#include "weft/models/sources.h"
#include "weft/models/sources_gguf.h"
#include "weft/text/tokenizer_json/write_tokenizer_json.h"

namespace weft::models {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxConfigBytes = uint64_t{1} << 20;

void save(const std::string& folder, const char* name, const std::string& text) {
  core::AtomicFile file(folder + "/" + name, text.size());
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

// Families and the class of transformers that runs them.
struct Architecture {
  const char* family;
  const char* name;
};
constexpr Architecture kArchitectures[] = {{"llama", "LlamaForCausalLM"},
                                           {"mistral", "MistralForCausalLM"},
                                           {"qwen2", "Qwen2ForCausalLM"},
                                           {"qwen3", "Qwen3ForCausalLM"}};

const char* architecture_of(const std::string& family, const std::string& where) {
  for (const Architecture& row : kArchitectures) {
    if (family == row.family) return row.name;
  }
  core::fail<core::ConfigError>(where, ": no config.json can be made for the family ",
                                core::quote(family), "; convert from its Hugging Face folder");
}

// What config.json would have to say in ways that differ between families.
void check_plain(const ModelConfig& config, const std::string& where) {
  const bool is_plain = config.rope_scaling == nn::RopeScaling() && config.windows.empty() &&
                        config.experts.num_experts == 0;
  core::check<core::ConfigError>(is_plain, where,
                                 ": no config.json can be made for rope scaling, windows or "
                                 "experts; convert from its Hugging Face folder");
}

json config_of(const ModelConfig& config, const text::Vocabulary& vocabulary,
               const std::string& where) {
  check_plain(config, where);
  json object = {{"architectures", json::array({architecture_of(config.family, where)})},
                 {"model_type", config.family},
                 {"vocab_size", config.vocab_size},
                 {"hidden_size", config.width},
                 {"num_hidden_layers", config.num_layers},
                 {"num_attention_heads", config.num_heads},
                 {"num_key_value_heads", config.num_kv_heads},
                 {"head_dim", config.head_dim},
                 {"intermediate_size", config.ffn_width},
                 {"max_position_embeddings", config.max_positions},
                 {"rms_norm_eps", config.norm_eps},
                 {"rope_theta", config.rope_base},
                 {"hidden_act", "silu"},
                 {"tie_word_embeddings", config.is_tied},
                 {"attention_bias", config.has_qkv_bias},
                 {"mlp_bias", config.has_mlp_bias}};
  if (vocabulary.bos >= 0) object["bos_token_id"] = vocabulary.bos;
  if (vocabulary.eos >= 0) object["eos_token_id"] = vocabulary.eos;
  return object;
}

json generation_config_of(const text::Vocabulary& vocabulary) {
  json object = {{"_from_model_config", true}};
  if (vocabulary.bos >= 0) object["bos_token_id"] = vocabulary.bos;
  if (vocabulary.eos >= 0) object["eos_token_id"] = vocabulary.eos;
  return object;
}

void save_config(json config, const json& quantization, const std::string& dtype,
                 const std::string& folder) {
  for (const char* key : {"quantization", "quantization_config"}) {
    if (quantization.is_null()) {
      config.erase(key);
    } else {
      config[key] = quantization;
    }
  }
  if (!dtype.empty()) {
    config.erase("dtype");
    config["torch_dtype"] = dtype;
  }
  save(folder, "config.json", config.dump(2) + "\n");
}

void export_gguf_files(const io::TensorFile& file, const json& quantization,
                       const std::string& dtype, const std::string& folder) {
  const text::Vocabulary vocabulary = load_tokenizer(file).vocabulary();
  const std::string chat_template = GgufKeys(file).text_or("tokenizer.chat_template", "");
  save(folder, "tokenizer.json", text::to_tokenizer_json(vocabulary, file.path()));
  save(folder, "tokenizer_config.json", text::to_tokenizer_config(vocabulary, chat_template));
  save(folder, "generation_config.json", generation_config_of(vocabulary).dump(2) + "\n");
  save_config(config_of(read_config(file), vocabulary, file.path()), quantization, dtype, folder);
}

}  // namespace

void export_files(const io::TensorFile& file, const json& quantization, const std::string& dtype,
                  const std::string& folder) {
  if (file.is_gguf()) {
    export_gguf_files(file, quantization, dtype, folder);
    return;
  }
  const std::string source = folder_of(file);
  const std::string path = source + "/config.json";
  const json config = core::parse_json(core::read_text_file(path, kMaxConfigBytes), path);
  io::copy_model_files(source, folder, {"config.json"});
  save_config(config, quantization, dtype, folder);
}

}  // namespace weft::models
