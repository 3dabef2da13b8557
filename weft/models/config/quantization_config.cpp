#include "weft/models/config/quantization_config.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "weft/core/error.h"
#include "weft/core/files/file.h"
#include "weft/core/json.h"
#include "weft/models/config/json_keys.h"
#include "weft/models/config/sources.h"

namespace weft::models {
namespace {

using core::check;
using core::ConfigError;
using core::FormatError;
using core::join;
using core::Json;
using core::quote;

constexpr int64_t kMaxGroup = int64_t{1} << 20;

const Json* present(const Json& json, const char* key, const std::string& where) {
  const Json* value = core::find(json, key, where);
  return value == nullptr || value->is_null() ? nullptr : value;
}

bool flag_or(const Json& json, const char* key, bool fallback, const std::string& where) {
  const Json* value = present(json, key, where);
  return value == nullptr ? fallback : core::to_bool(*value, join(where, ".", key));
}

std::string text_or(const Json& json, const char* key, const std::string& fallback,
                    const std::string& where) {
  const Json* value = present(json, key, where);
  return value == nullptr ? fallback : core::to_string(*value, join(where, ".", key));
}

int64_t integer(const Json& json, const char* key, const std::string& where) {
  return core::to_int64(core::require(json, key, where), join(where, ".", key));
}

// Bits and group of one scheme; AWQ and GPTQ write -1 for a group of the whole row.
StatedScheme read_sizes(const Json& json, const std::string& mode, const std::string& where) {
  StatedScheme scheme;
  scheme.mode = mode;
  scheme.bits = integer(json, "bits", where);
  const int64_t group = integer(json, "group_size", where);
  scheme.group_size = group == -1 ? 0 : group;
  check<FormatError>(scheme.bits >= 1 && scheme.bits <= 8, where, ".bits: ", scheme.bits,
                     ", expected 1 to 8");
  check<FormatError>(group == -1 || (group >= 1 && group <= kMaxGroup), where,
                     ".group_size: ", group, ", expected 1 to ", kMaxGroup, ", or -1");
  return scheme;
}

StatedScheme read_mlx_scheme(const Json& json, const std::string& where) {
  const std::string mode = text_or(json, "mode", "affine", where);
  const bool is_known = mode == "affine" || mode == "mxfp4" || mode == "mxfp8" || mode == "nvfp4";
  check<ConfigError>(is_known, where, ".mode: ", quote(mode),
                     " is not supported; supported: affine, mxfp4, mxfp8, nvfp4");
  return read_sizes(json, mode, where);
}

// Matrices that differ have their path as a key: with a scheme, or false for none.
QuantizationConfig read_mlx(const Json& json, const std::string& where) {
  QuantizationConfig config;
  config.where = where;
  config.all = read_mlx_scheme(json, where);
  for (const auto& [key, value] : json.items()) {
    const std::string inner = join(where, ".", key);
    if (value.is_object()) config.overrides[key] = read_mlx_scheme(value, inner);
    if (key.find('.') == std::string::npos || value.is_object()) continue;
    const bool is_quantized = core::to_bool(value, inner);
    config.overrides[key] = is_quantized ? config.all : StatedScheme{"none", 0, 0};
  }
  return config;
}

QuantizationConfig read_method(const Json& json, const std::string& method,
                               const std::string& where) {
  check<ConfigError>(method == "awq" || method == "gptq" || method == "mxfp4", where,
                     ".quant_method: ", quote(method),
                     " is not supported; supported: awq, gptq, mxfp4, and MLX's own");
  QuantizationConfig config;
  config.where = where;
  // Experts alone; it has no numbers, and what is left plain is not compared.
  if (method == "mxfp4") {
    config.all = {"mxfp4", 4, 32};
    return config;
  }
  config.all = read_sizes(json, method, where);
  check<ConfigError>(!flag_or(json, "desc_act", false, where), where,
                     ".desc_act: act-order is not supported; use a checkpoint made without it");
  if (method == "awq") {
    const std::string version = text_or(json, "version", "gemm", where);
    check<ConfigError>(version == "gemm" || version == "GEMM", where, ".version: ", quote(version),
                       " is not supported; supported: gemm");
    return config;
  }
  const std::string form = text_or(json, "checkpoint_format", "gptq", where);
  check<ConfigError>(form == "gptq" || form == "gptq_v2", where,
                     ".checkpoint_format: ", quote(form),
                     " is not supported; supported: gptq and gptq_v2");
  config.stores_zero_less_one = form == "gptq";
  config.is_symmetric = flag_or(json, "sym", false, where);
  return config;
}

std::string to_text(const StatedScheme& scheme) {
  if (scheme.mode == "none") return "not quantized";
  return join(scheme.mode, " ", scheme.bits, "-bit g", scheme.group_size);
}

StatedScheme shown(const io::MatrixFormat& format) {
  if (format.scheme.empty()) return {"none", 0, 0};
  return {format.scheme, format.bits, format.group_size};
}

}  // namespace

std::optional<QuantizationConfig> read_quantization_config(const io::TensorFile& file) {
  const std::string path = folder_of(file) + "/config.json";
  if (file.is_gguf() || !std::filesystem::exists(path)) return std::nullopt;
  const Json root = core::parse_json(core::read_text_file(path, kMaxConfigBytes), path);
  if (const Json* mlx = present(root, "quantization", path)) {
    return read_mlx(*mlx, path + ": quantization");
  }
  const Json* other = present(root, "quantization_config", path);
  if (other == nullptr) return std::nullopt;
  const std::string where = path + ": quantization_config";
  const std::string method = text_or(*other, "quant_method", "", where);
  return method.empty() ? read_mlx(*other, where) : read_method(*other, method, where);
}

void check_stated(const QuantizationConfig& config, const std::string& path,
                  const io::MatrixFormat& format) {
  const StatedScheme found = shown(format);
  const auto override = config.overrides.find(path);
  // Without a word of its own a matrix may be left as it was: a head, an embedding.
  if (override == config.overrides.end() && found.mode == "none") return;
  StatedScheme stated = override == config.overrides.end() ? config.all : override->second;
  if (stated.group_size == 0) stated.group_size = found.group_size;
  check<FormatError>(stated == found, config.where, ": ", quote(path), " is ", to_text(stated),
                     ", but its tensors are ", to_text(found),
                     "; the file and its config disagree");
}

}  // namespace weft::models
