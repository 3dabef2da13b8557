#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "weft/io/tensor_file.h"
#include "weft/models/config/config.h"
#include "weft/text/chat_template.h"
#include "weft/text/tokenizer/tokenizer.h"

namespace weft::models {

/// From a GGUF's keys (`general.architecture` and `<architecture>.*`). Values are not checked yet.
ModelConfig config_from_gguf(const io::TensorFile& file);
/// From the contents of a config.json; `where` begins messages. Values are not checked yet.
ModelConfig config_from_json(const nlohmann::json& json, const std::string& where);
/// Of a config.json around texts and pictures what says the model of texts by itself, as
/// transformers reads it beside that model's weights alone; any other as it is. Throws as
/// config_from_json.
nlohmann::json config_of_texts(const nlohmann::json& json, const std::string& where);
/// From config.json in the file's folder (Hugging Face's keys). Values are not checked yet.
ModelConfig config_from_folder(const io::TensorFile& file);

/// The tokenizer that the model ships: tokenizer.ggml.* keys of a GGUF, or tokenizer.json.
/// Throws FormatError, or ConfigError for a kind that weft does not know.
text::Tokenizer load_tokenizer(const io::TensorFile& file);
/// The chat template that the model ships, if any.
std::optional<text::ChatTemplate> load_chat_template(const io::TensorFile& file);

/// The folder that holds the model's files.
std::string folder_of(const io::TensorFile& file);

}  // namespace weft::models
