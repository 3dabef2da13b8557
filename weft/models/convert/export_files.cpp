#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "weft/core/error.h"
#include "weft/core/files/atomic_file.h"
#include "weft/core/files/file.h"
#include "weft/core/json.h"
#include "weft/io/tensor_folder_writer.h"
#include "weft/models/config/config.h"
#include "weft/models/config/json_keys.h"
#include "weft/models/config/sources.h"
#include "weft/models/config/sources_gguf.h"
#include "weft/models/convert/export.h"
#include "weft/models/convert/folder_config.h"
#include "weft/text/tokenizer_json/tokenizer_folder.h"
#include "weft/text/tokenizer_json/write_tokenizer_json.h"

namespace weft::models {
namespace {

using nlohmann::json;

void save(const std::string& folder, const char* name, const std::string& text) {
  core::write_file_atomically(folder + "/" + name, text);
}

void add_special_ids(json& object, const text::Vocabulary& vocabulary) {
  if (vocabulary.bos >= 0) object["bos_token_id"] = vocabulary.bos;
  if (vocabulary.eos >= 0) object["eos_token_id"] = vocabulary.eos;
}

// All tokens that end a text or an answer, eos first: without them transformers takes its family's
// own, which are other tokens here.
void add_end_ids(json& object, const text::Tokenizer& tokenizer) {
  const text::Vocabulary& vocabulary = tokenizer.vocabulary();
  std::vector<text::TokenId> ends;
  if (vocabulary.eos >= 0) ends.push_back(vocabulary.eos);
  for (size_t i = 0; i < tokenizer.vocab_size(); ++i) {
    const auto id = static_cast<text::TokenId>(i);
    if (id != vocabulary.eos && tokenizer.is_end(id)) ends.push_back(id);
  }
  object["eos_token_id"] = ends.size() == 1 ? json(ends[0]) : ends.empty() ? json() : json(ends);
  object["bos_token_id"] = vocabulary.bos >= 0 ? json(vocabulary.bos) : json();
}

json generation_config_of(const text::Vocabulary& vocabulary) {
  json object = {{"_from_model_config", true}};
  add_special_ids(object, vocabulary);
  return object;
}

void save_config(json config, const json& quantization, const std::string& dtype,
                 const std::string& folder) {
  for (const char* key : {"quantization", "quantization_config"}) config.erase(key);
  if (!quantization.is_null()) {
    config["quantization_config"] = quantization;
    if (!quantization.contains("quant_method")) config["quantization"] = quantization;
  }
  if (!dtype.empty()) {
    config.erase("dtype");
    config["torch_dtype"] = dtype;
  }
  save(folder, "config.json", config.dump(2) + "\n");
}

void export_gguf_tokenizer(const io::TensorFile& file, const text::Vocabulary& vocabulary,
                           const std::string& folder) {
  const std::string chat_template = GgufKeys(file).text_or("tokenizer.chat_template", "");
  save(folder, "tokenizer.json", text::to_tokenizer_json(vocabulary, file.path()));
  save(folder, "tokenizer_config.json", text::to_tokenizer_config(vocabulary, chat_template));
  save(folder, "generation_config.json", generation_config_of(vocabulary).dump(2) + "\n");
}

void export_gguf_files(const io::TensorFile& file, const json& quantization,
                       const std::string& dtype, const std::string& folder) {
  const text::Vocabulary vocabulary = load_tokenizer(file).vocabulary();
  export_gguf_tokenizer(file, vocabulary, folder);
  json config = config_json(folder_config(file));
  add_special_ids(config, vocabulary);
  save_config(std::move(config), quantization, dtype, folder);
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
  const json config =
      config_of_texts(core::parse_json(core::read_text_file(path, kMaxConfigBytes), path), path);
  io::copy_model_files(source, folder, {"config.json"});
  save_config(config, quantization, dtype, folder);
}

void export_new_files(const nlohmann::json& config, const std::string& tokenizer_path,
                      const std::string& dtype, const std::string& folder) {
  namespace fs = std::filesystem;
  json object = config;
  if (tokenizer_path.ends_with(".gguf")) {
    const auto file = io::TensorFile::open(tokenizer_path);
    const text::Vocabulary vocabulary = load_tokenizer(*file).vocabulary();
    export_gguf_tokenizer(*file, vocabulary, folder);
    add_special_ids(object, vocabulary);
  } else {
    const fs::path path(tokenizer_path);
    const fs::path source = fs::is_directory(path) ? path : path.parent_path();
    io::copy_model_files(source.string(), folder, {"config.json"});
    add_end_ids(object, text::read_tokenizer_folder(source.string()).tokenizer);
  }
  save_config(object, nullptr, dtype, folder);
}

}  // namespace weft::models
