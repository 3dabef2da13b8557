#include "weft/models/peft_folder.h"

#include <ATen/core/Tensor.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "weft/core/error.h"
#include "weft/core/files/atomic_file.h"
#include "weft/core/files/file.h"
#include "weft/core/json.h"
#include "weft/io/formats/write_safetensors.h"
#include "weft/io/load_tensor.h"
#include "weft/io/tensor_file.h"
#include "weft/models/config/json_keys.h"
#include "weft/models/decoder/decoder_names.h"
#include "weft/models/decoder/weights/fused_rows.h"

namespace weft::models {
namespace {

namespace fs = std::filesystem;
using core::check;
using core::ConfigError;
using core::FormatError;
using core::Json;
using core::quote;

// What peft's PeftModel and LoraModel put before a layer's own path.
constexpr std::string_view kPrefix = "base_model.model.";
constexpr char kExample[] = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight";

// What changes how the weights are meant, where it is anything but null, false or empty.
constexpr const char* kOtherKinds[] = {"use_dora",
                                       "fan_in_fan_out",
                                       "lora_bias",
                                       "modules_to_save",
                                       "layer_replication",
                                       "target_parameters",
                                       "trainable_token_indices",
                                       "alora_invocation_tokens",
                                       "use_qalora",
                                       "use_bdlora",
                                       "arrow_config",
                                       "kasa_config",
                                       "monteclora_config"};

bool is_set(const Json& value) {
  if (value.is_null()) return false;
  if (value.is_boolean()) return value.get<bool>();
  return !value.empty();
}

void refuse_other_kinds(const Json& config, const std::string& where) {
  const std::string kind = core::to_string(core::require(config, "peft_type", where), where);
  check<ConfigError>(kind == "LORA", where, ": peft_type ", quote(kind), ", expected 'LORA'");
  for (const char* key : kOtherKinds) {
    const Json* value = core::find(config, key, where);
    check<ConfigError>(value == nullptr || !is_set(*value), where, ": ", key, " ",
                       value == nullptr ? "" : quote(core::dump_json(*value)),
                       ", expected none: weft reads plain LoRA; merge it in peft "
                       "(merge_and_unload) and give the merged model");
  }
  const Json* bias = core::find(config, "bias", where);
  check<ConfigError>(bias == nullptr || *bias == "none", where, ": bias ",
                     bias == nullptr ? "" : quote(core::dump_json(*bias)),
                     ", expected \"none\"; merge it in peft (merge_and_unload)");
}

bool is_end_of(const std::string& place, const std::string& name) {
  return place == name || place.ends_with("." + name);
}

// Names of layers, or ends of them, with a number each; peft also knows regular expressions.
std::map<std::string, double> read_pattern(const Json& config, const char* key,
                                           const std::string& where) {
  std::map<std::string, double> pattern;
  const Json* value = core::find(config, key, where);
  if (value == nullptr || value->is_null()) return pattern;
  check<FormatError>(value->is_object(), where, ": ", key, ": expected an object");
  for (const auto& [name, number] : value->items()) {
    check<ConfigError>(name.find_first_of("*+?[](){}|^$\\") == std::string::npos, where, ": ", key,
                       ": ", quote(name), " is a regular expression, expected a layer's name");
    pattern[name] = core::to_double(number, where + ": " + key);
  }
  return pattern;
}

double pattern_value(const std::map<std::string, double>& pattern, const std::string& place,
                     double otherwise) {
  for (const auto& [name, value] : pattern) {
    if (is_end_of(place, name)) return value;
  }
  return otherwise;
}

// adapter_config.json.
struct Config {
  double rank = 0;
  double alpha = 0;
  bool is_rank_stabilized = false;
  std::map<std::string, double> ranks, alphas;
  // Empty: a regular expression or a shorthand says it.
  std::vector<std::string> targets;

  double rank_of(const std::string& place) const { return pattern_value(ranks, place, rank); }
  double scale_of(const std::string& place) const {
    const double r = rank_of(place);
    return pattern_value(alphas, place, alpha) / (is_rank_stabilized ? std::sqrt(r) : r);
  }
};

Config read_config_file(const std::string& path) {
  const Json json = core::parse_json(core::read_text_file(path, kMaxConfigBytes), path);
  refuse_other_kinds(json, path);
  Config config;
  config.rank = core::to_double(core::require(json, "r", path), path + ": r");
  config.alpha = core::to_double(core::require(json, "lora_alpha", path), path + ": lora_alpha");
  check<FormatError>(config.rank >= 1 && std::isfinite(config.alpha), path, ": r ", config.rank,
                     " and lora_alpha ", config.alpha, ", expected at least 1 and a number");
  const Json* stabilized = core::find(json, "use_rslora", path);
  config.is_rank_stabilized = stabilized != nullptr && is_set(*stabilized);
  config.ranks = read_pattern(json, "rank_pattern", path);
  config.alphas = read_pattern(json, "alpha_pattern", path);
  const Json* targets = core::find(json, "target_modules", path);
  if (targets != nullptr && targets->is_array()) {
    for (const Json& each : *targets) {
      config.targets.push_back(core::to_string(each, path + ": target_modules"));
    }
  }
  return config;
}

// "model.layers.0.self_attn.q_proj" and 'A' of kExample.
std::optional<std::pair<std::string, char>> parse_name(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  name.remove_prefix(kPrefix.size());
  for (const char factor : {'A', 'B'}) {
    const std::string end = core::join(".lora_", factor, ".weight");
    if (!name.ends_with(end)) continue;
    name.remove_suffix(end.size());
    return std::pair{std::string(name), factor};
  }
  return std::nullopt;
}

std::string tensor_name(const std::string& place, char factor) {
  return core::join(kPrefix, place, ".lora_", factor, ".weight");
}

void check_targets(const std::vector<AdapterLayer>& layers, const Config& config,
                   const std::string& where) {
  for (const std::string& target : config.targets) {
    const bool is_used = std::ranges::any_of(
        layers, [&](const AdapterLayer& layer) { return is_end_of(layer.place, target); });
    check<FormatError>(is_used, where, ": no layer ", quote(target), ", which target_modules of ",
                       kPeftConfigName, " names");
  }
}

AdapterLayer describe(const io::TensorFile& file, const std::string& place, const Config& config) {
  const auto& a = file.require(tensor_name(place, 'A'));
  const auto& b = file.require(tensor_name(place, 'B'));
  const double rank = config.rank_of(place);
  const bool fits = a.shape.size() == 2 && b.shape.size() == 2 && a.shape[0] == b.shape[1] &&
                    static_cast<double>(a.shape[0]) == rank;
  check<FormatError>(fits, file.path(), ": ", place, ": A ", core::list_text(a.shape), " and B ",
                     core::list_text(b.shape), ", expected [", rank, ", in] and [out, ", rank,
                     "] as ", kPeftConfigName, " has the rank");
  AdapterLayer layer;
  layer.place = place;
  layer.rank = a.shape[0];
  layer.in = a.shape[1];
  layer.out = b.shape[0];
  layer.scale = config.scale_of(place);
  return layer;
}

std::vector<AdapterLayer> describe_all(const io::TensorFile& file, const Config& config) {
  std::vector<AdapterLayer> layers;
  for (const io::TensorMeta& tensor : file.tensors()) {
    const auto name = parse_name(tensor.name);
    check<ConfigError>(name.has_value(), file.path(), ": tensor ", quote(tensor.name),
                       ", expected names like ", kExample,
                       ": adapters of linear layers; merge others in peft (merge_and_unload)");
    const bool is_known = std::ranges::any_of(
        layers, [&](const AdapterLayer& layer) { return layer.place == name->first; });
    if (!is_known) layers.push_back(describe(file, name->first, config));
  }
  check_targets(layers, config, file.path());
  return layers;
}

class PeftFolder : public AdapterSource {
 public:
  PeftFolder(const std::string& folder, std::shared_ptr<const io::TensorFile> file,
             const Config& config)
      : AdapterSource(folder, describe_all(*file, config)), file_(std::move(file)) {}

  nn::LoraFactors read(const AdapterLayer& layer) const override {
    return {io::load_tensor(*file_, tensor_name(layer.place, 'A'), at::kFloat),
            io::load_tensor(*file_, tensor_name(layer.place, 'B'), at::kFloat), layer.scale};
  }

 private:
  std::shared_ptr<const io::TensorFile> file_;
};

// A whole number without a point, as peft writes it.
Json number(double value) {
  const bool is_whole = value == std::floor(value) && std::abs(value) < 1e15;
  return is_whole ? Json(static_cast<int64_t>(value)) : Json(value);
}

io::TensorToWrite to_write(const std::string& name, const at::Tensor& values) {
  const auto* bytes = static_cast<const std::byte*>(values.const_data_ptr());
  return {name, io::Dtype::kF32, values.sizes().vec(), {bytes, values.nbytes()}};
}

}  // namespace

std::unique_ptr<AdapterSource> open_peft_folder(const std::string& folder) {
  const std::string config = (fs::path(folder) / kPeftConfigName).string();
  const std::string weights = (fs::path(folder) / kPeftWeightsName).string();
  check<FormatError>(fs::exists(config), folder, ": no ", kPeftConfigName,
                     ", expected a folder that peft has saved");
  check<FormatError>(fs::exists(weights), folder, ": no ", kPeftWeightsName,
                     "; save it with safe_serialization=True");
  return std::make_unique<PeftFolder>(folder, io::TensorFile::open(weights),
                                      read_config_file(config));
}

void check_peft_layers(const AdapterSource& adapters, const ModelConfig& config) {
  const auto places = part_places(config);
  for (const AdapterLayer& layer : adapters.layers()) {
    const auto found = places.find(layer.place);
    if (found == places.end()) continue;
    const Part part = found->second.part;
    const bool is_embedding = part == Part::kEmbedding || part == Part::kInputEmbedding;
    check<ConfigError>(!is_embedding && !is_joined_in_folders(config, part), adapters.path(),
                       ": adapts ", quote(layer.place),
                       is_embedding ? ", an embedding, whose adapters peft has in another form"
                                    : ", which is a part of another layer in transformers",
                       "; weft fuse writes a model with them");
  }
}

void write_peft_folder(const AdapterSource& adapters, const PeftConfig& config,
                       const std::string& folder) {
  std::vector<nn::LoraFactors> kept;
  std::vector<io::TensorToWrite> tensors;
  kept.reserve(adapters.layers().size());
  for (const AdapterLayer& layer : adapters.layers()) {
    kept.push_back(adapters.read(layer));
    tensors.push_back(to_write(tensor_name(layer.place, 'A'), kept.back().a));
    tensors.push_back(to_write(tensor_name(layer.place, 'B'), kept.back().b));
  }
  // As PyTorch's own files say of themselves.
  io::write_safetensors((fs::path(folder) / kPeftWeightsName).string(), tensors,
                        {{"format", "pt"}});
  const Json json = {{"peft_type", "LORA"},
                     {"task_type", "CAUSAL_LM"},
                     {"base_model_name_or_path", config.base_model},
                     {"inference_mode", true},
                     {"r", config.rank},
                     {"lora_alpha", number(config.alpha)},
                     {"lora_dropout", config.dropout},
                     {"target_modules", config.targets},
                     {"bias", "none"},
                     {"fan_in_fan_out", false},
                     {"use_rslora", false},
                     {"use_dora", false},
                     {"modules_to_save", nullptr}};
  const std::string text = json.dump(2) + "\n";
  core::write_file_atomically((fs::path(folder) / kPeftConfigName).string(), text);
}

}  // namespace weft::models
