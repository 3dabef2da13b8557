#include "weft/models/config/head_counts.h"

#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "weft/core/files/file.h"
#include "weft/models/config/json_keys.h"
#include "weft/models/config/sources.h"

namespace weft::models {
namespace {

using core::Json;

constexpr std::array kConfigFiles = {"config.json", "mlc-chat-config.json"};
// MLC keeps Hugging Face's keys in the first, models that also see keep them in the second.
constexpr std::array kInnerObjects = {"model_config", "text_config"};

std::optional<io::HeadCounts> counts_in(const Json& json, const std::string& where) {
  const JsonKeys keys(json, where);
  if (keys.has("num_attention_heads")) {
    const int64_t heads = keys.integer("num_attention_heads");
    return io::HeadCounts{heads, keys.integer_or("num_key_value_heads", heads)};
  }
  for (const char* inner : kInnerObjects) {
    if (const Json* object = keys.find(inner)) return counts_in(*object, where + ": " + inner);
  }
  return std::nullopt;
}

}  // namespace

std::optional<io::HeadCounts> read_head_counts(const io::TensorFile& file) {
  for (const char* name : kConfigFiles) {
    const std::string path = folder_of(file) + "/" + name;
    if (!std::filesystem::exists(path)) continue;
    const Json json = core::parse_json(core::read_text_file(path, kMaxConfigBytes), path);
    if (const auto counts = counts_in(json, path)) return counts;
  }
  return std::nullopt;
}

}  // namespace weft::models
