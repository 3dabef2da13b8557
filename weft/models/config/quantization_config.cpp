#include "weft/models/config/quantization_config.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "weft/core/error.h"
#include "weft/core/files/file.h"
#include "weft/core/json.h"
#include "weft/io/matrices/packed_columns.h"
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

// --- Numbers of 8 bits with scales: {"fp8", 8, 0} whatever shares a scale.

QuantizationConfig read_floats(const std::string& where, std::optional<ScaleBlock> block) {
  QuantizationConfig config;
  config.where = where;
  config.all = {"fp8", 8, 0};
  config.scale_block = block;
  return config;
}

ScaleBlock read_block(const Json& value, const std::string& where) {
  check<FormatError>(value.is_array() && value.size() == 2, where, ": ", core::dump_json(value),
                     ", expected rows and columns of a block: [128, 128]");
  const ScaleBlock block{core::to_int64(value[0], where), core::to_int64(value[1], where)};
  const bool fits =
      std::min(block.rows, block.columns) >= 1 && std::max(block.rows, block.columns) <= kMaxGroup;
  check<FormatError>(fits, where, ": ", core::dump_json(value), ", expected 1 to ", kMaxGroup);
  return block;
}

// DeepSeek's, with blocks, and others' of the same name without.
QuantizationConfig read_fp8(const Json& json, const std::string& where) {
  const std::string form = text_or(json, "fmt", "e4m3", where);
  check<ConfigError>(form == "e4m3" || form == "float8_e4m3fn", where, ".fmt: ", quote(form),
                     " is not supported; supported: e4m3");
  const Json* block = present(json, "weight_block_size", where);
  if (block == nullptr) return read_floats(where, std::nullopt);
  return read_floats(where, read_block(*block, where + ".weight_block_size"));
}

QuantizationConfig read_fbgemm(const Json&, const std::string& where) {
  return read_floats(where, ScaleBlock{1, 0});
}

ScaleBlock read_strategy(const Json& weights, const std::string& where) {
  const std::string strategy = text_or(weights, "strategy", "tensor", where);
  if (strategy == "tensor") return {0, 0};
  if (strategy == "channel") return {1, 0};
  check<ConfigError>(strategy == "block", where, ".strategy: ", quote(strategy),
                     " is not supported for floats; supported: tensor, channel and block");
  return read_block(core::require(weights, "block_structure", where), where + ".block_structure");
}

// compressed-tensors': groups of modules, each with a form of its own.
struct CompressedGroup {
  std::string where;
  const Json* weights = nullptr;
  std::string type;
  int64_t bits = 0;
};

std::vector<CompressedGroup> compressed_groups(const Json& json, const std::string& where) {
  std::vector<CompressedGroup> groups;
  for (const auto& [name, group] : core::require(json, "config_groups", where).items()) {
    const std::string path = join(where, ".config_groups.", name, ".weights");
    const Json& weights = core::require(group, "weights", path);
    groups.push_back({path, &weights, text_or(weights, "type", "int", path),
                      integer(weights, "num_bits", path)});
  }
  return groups;
}

QuantizationConfig read_compressed_floats(const std::vector<CompressedGroup>& groups,
                                          const std::string& where) {
  std::optional<ScaleBlock> block;
  bool is_same = true;
  for (const CompressedGroup& group : groups) {
    check<ConfigError>(group.type == "float" && group.bits == 8, group.where, ": ",
                       quote(group.type), " of ", group.bits,
                       " bits is not supported; supported: float of 8");
    check<ConfigError>(flag_or(*group.weights, "symmetric", true, group.where), group.where,
                       ".symmetric: false is not supported for floats");
    const ScaleBlock own = read_strategy(*group.weights, group.where);
    is_same = is_same && block.value_or(own) == own;
    block = own;
  }
  // Of groups that differ the counts of scales must tell.
  return read_floats(where, is_same ? block : std::nullopt);
}

// Bits and quant groups of {"int", 0, 0} are what the tensors show: groups of modules may differ.
// Numbers that are not packed take 8 bits each, however few they need.
QuantizationConfig read_compressed_integers(const std::vector<CompressedGroup>& groups,
                                            bool are_packed, const std::string& where) {
  QuantizationConfig config;
  config.where = where;
  config.all = {"int", 0, 0};
  for (const CompressedGroup& group : groups) {
    check<ConfigError>(group.type == "int", group.where, ": ", quote(group.type), " of ",
                       group.bits, " bits is not supported; supported: int");
    const std::string strategy = text_or(*group.weights, "strategy", "tensor", group.where);
    check<ConfigError>(strategy == "channel" || strategy == "group", group.where,
                       ".strategy: ", quote(strategy),
                       " is not supported for integers; supported: channel and group");
    const bool has_group = strategy == "group";
    const StatedScheme own = {"int", are_packed ? group.bits : 8,
                              has_group ? integer(*group.weights, "group_size", group.where) : 0};
    if (groups.size() == 1) config.all = own;
  }
  return config;
}

// What else may have been done to the weights, which no tensor of theirs shows.
void check_compressed_alone(const Json& json, const std::string& where) {
  const Json* sparsity = present(json, "sparsity_config", where);
  const std::string inner = where + ".sparsity_config";
  const std::string form =
      sparsity == nullptr ? "dense" : text_or(*sparsity, "format", "dense", inner);
  check<ConfigError>(form == "dense", inner, ".format: ", quote(form),
                     " is not supported; supported: dense");
  const Json* transform = present(json, "transform_config", where);
  check<ConfigError>(transform == nullptr || transform->empty(), where,
                     ".transform_config: rotated weights are not supported; use a checkpoint made "
                     "without it");
}

// `ignore` isn't read: what is left plain shows that itself.
QuantizationConfig read_compressed(const Json& json, const std::string& where) {
  const std::string form = text_or(json, "format", "", where);
  const std::vector<CompressedGroup> groups = compressed_groups(json, where);
  const bool is_packed = form == "pack-quantized", is_naive = form == "naive-quantized";
  check<ConfigError>(is_packed || is_naive || form == "int-quantized" || form == "float-quantized",
                     where, ".format: ", quote(form),
                     " is not supported; supported: float-quantized, int-quantized, "
                     "naive-quantized, pack-quantized");
  check_compressed_alone(json, where);
  const bool is_naive_integer = is_naive && !groups.empty() && groups.front().type == "int";
  return is_packed || is_naive_integer || form == "int-quantized"
             ? read_compressed_integers(groups, is_packed, where)
             : read_compressed_floats(groups, where);
}

// --- AWQ's and GPTQ's, and gpt-oss's experts.

// It has no numbers, and what is left plain is not compared.
QuantizationConfig read_mxfp4(const Json&, const std::string& where) {
  QuantizationConfig config;
  config.where = where;
  config.all = {"mxfp4", 4, 32};
  return config;
}

QuantizationConfig read_packed(const Json& json, const std::string& method,
                               const std::string& where) {
  QuantizationConfig config;
  config.where = where;
  config.all = read_sizes(json, method, where);
  return config;
}

QuantizationConfig read_awq(const Json& json, const std::string& where) {
  QuantizationConfig config = read_packed(json, "awq", where);
  std::string version = text_or(json, "version", "gemm", where);
  std::ranges::transform(version, version.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 32) : c;
  });
  // Programs for which exllama or ipex is said read what gemm has, and pack it anew.
  constexpr std::array<std::string_view, 4> kVersions = {"gemm", "gemv", "exllama", "ipex"};
  check<ConfigError>(std::ranges::find(kVersions, version) != kVersions.end(), where,
                     ".version: ", quote(version),
                     " is not supported; supported: gemm, gemv, exllama, ipex");
  return config;
}

QuantizationConfig read_gptq(const Json& json, const std::string& where) {
  QuantizationConfig config = read_packed(json, "gptq", where);
  const std::string form = text_or(json, "checkpoint_format", "gptq", where);
  check<ConfigError>(form == "gptq" || form == "gptq_v2", where,
                     ".checkpoint_format: ", quote(form),
                     " is not supported; supported: gptq and gptq_v2");
  config.stores_zero_less_one = form == "gptq";
  config.is_symmetric = flag_or(json, "sym", false, where);
  // "static_groups" are those of neighbours although the columns were rounded in another order.
  config.is_ordered = flag_or(json, "desc_act", false, where) &&
                      !flag_or(json, "static_groups", false, where) && config.all.group_size != 0;
  return config;
}

// What it excepts is plain and shows that itself; codes of 4 bits show which they are.
QuantizationConfig read_bitsandbytes(const Json& json, const std::string& where) {
  QuantizationConfig config;
  config.where = where;
  config.all = {"bitsandbytes", 8, 0};
  if (flag_or(json, "load_in_8bit", false, where)) return config;
  const std::string storage = text_or(json, "bnb_4bit_quant_storage", "uint8", where);
  check<ConfigError>(storage == "uint8", where, ".bnb_4bit_quant_storage: ", quote(storage),
                     " is not supported; supported: uint8");
  config.all.bits = 4;
  return config;
}

// One "quant_method".
struct Method {
  const char* name;
  QuantizationConfig (*read)(const Json& json, const std::string& where);
};
constexpr std::array<Method, 7> kMethods = {{{"awq", read_awq},
                                             {"gptq", read_gptq},
                                             {"mxfp4", read_mxfp4},
                                             {"fp8", read_fp8},
                                             {"fbgemm_fp8", read_fbgemm},
                                             {"compressed-tensors", read_compressed},
                                             {"bitsandbytes", read_bitsandbytes}}};

QuantizationConfig read_method(const Json& json, const std::string& name,
                               const std::string& where) {
  const auto* const method =
      std::ranges::find_if(kMethods, [&](const Method& each) { return each.name == name; });
  check<ConfigError>(method != kMethods.end(), where, ".quant_method: ", quote(name),
                     " is not supported; supported: awq, gptq, mxfp4, fp8, fbgemm_fp8, "
                     "compressed-tensors, bitsandbytes, and MLX's own");
  return method->read(json, where);
}

std::string to_text(const StatedScheme& scheme) {
  if (scheme.mode == "none") return "not quantized";
  if (scheme.mode == "fp8") return scheme.mode;
  return join(scheme.mode, " ", scheme.bits, "-bit g", scheme.group_size);
}

StatedScheme shown(const io::MatrixFormat& format) {
  if (format.scheme.empty()) return {"none", 0, 0};
  return {format.scheme, format.bits, format.group_size};
}

int64_t num_runs(int64_t size, int64_t run) { return (size + run - 1) / run; }

void take_block(const QuantizationConfig& config, const io::MatrixRef& matrix,
                io::ScaleGrid& scales) {
  const ScaleBlock& block = *config.scale_block;
  const int64_t rows = block.rows == 0 ? matrix.out : block.rows;
  const int64_t columns = block.columns == 0 ? matrix.in : block.columns;
  const bool fits = scales.out_count == num_runs(matrix.out, rows) &&
                    scales.in_count == num_runs(matrix.in, columns);
  check<FormatError>(fits, config.where, ": a scale for each block of ", rows, " by ", columns,
                     ", but ", quote(scales.tensor), " has ", scales.out_count, " by ",
                     scales.in_count, ", expected ", num_runs(matrix.out, rows), " by ",
                     num_runs(matrix.in, columns), "; the file and its config disagree");
  scales.per_out = rows;
  scales.per_in = columns;
}

// What g_idx says is trusted where config.json has act-order, and checked to be plain elsewhere.
void take_order(const io::MatrixRef& matrix, io::MatrixFormat& format) {
  constexpr size_t kGroupIndex = 3;
  if (format.kind != io::MatrixKind::kGptq || format.parts.size() <= kGroupIndex) return;
  format.kind = io::MatrixKind::kOrderedIntegers;
  format.text += " act-order";
  // Any columns may be of any group.
  for (size_t part = 1; part < kGroupIndex; ++part) {
    format.parts[part].shared_in = matrix.in / format.group_size;
  }
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

void take_stated(const QuantizationConfig& config, const io::MatrixRef& matrix,
                 io::MatrixFormat& format) {
  format.stores_zero_less_one = config.stores_zero_less_one;
  format.is_symmetric = config.is_symmetric;
  if (config.is_ordered) take_order(matrix, format);
  if (config.all.mode == "awq") io::take_group_size(matrix, config.all.group_size, format);
  const StatedScheme found = shown(format);
  const auto override = config.overrides.find(matrix.base);
  // Without a word of its own a matrix may be left as it was: a head, an embedding.
  if (override == config.overrides.end() && found.mode == "none") return;
  StatedScheme stated = override == config.overrides.end() ? config.all : override->second;
  if (stated.bits == 0) stated.bits = found.bits;
  if (stated.group_size == 0) stated.group_size = found.group_size;
  check<FormatError>(stated == found, config.where, ": ", quote(matrix.base), " is ",
                     to_text(stated), ", but its tensors are ", to_text(found),
                     "; the file and its config disagree");
  if (format.kind == io::MatrixKind::kScaledFloats && config.scale_block) {
    take_block(config, matrix, format.scales);
  }
}

}  // namespace weft::models
