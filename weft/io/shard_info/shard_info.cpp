#include "weft/io/shard_info/shard_info.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "weft/core/error.h"
#include "weft/core/files/file.h"
#include "weft/core/json.h"
#include "weft/io/shard_info/shard_info_json.h"

namespace weft::io {

using core::check;
using core::FormatError;
using core::Json;
using core::quote;

std::optional<Dtype> dtype_from_text(std::string_view name) {
  // TVM's names.
  if (const auto known = core::dtype_from_array_name(name)) return known;
  return core::dtype_from_safetensors(name);
}

std::vector<int64_t> read_shape(const Json& value, const std::string& where) {
  check<FormatError>(value.is_array(), where, ": expected a list of sizes, got ",
                     value.type_name());
  std::vector<int64_t> shape;
  for (const Json& size : value) {
    shape.push_back(core::to_int64(size, where));
    check<FormatError>(shape.back() >= 0, where, ": size ", shape.back(), ", expected at least 0");
  }
  int64_t product = 1;
  for (const int64_t size : shape) {
    check<FormatError>(!__builtin_mul_overflow(product, std::max<int64_t>(size, 1), &product),
                       where, ": ", core::list_text(shape), " is more than 2^63 elements");
  }
  return shape;
}

Dtype read_dtype(const Json& value, const std::string& where) {
  const std::string name = core::to_string(value, where);
  const auto dtype = dtype_from_text(name);
  check<FormatError>(dtype.has_value(), where, ": unknown type ", quote(name),
                     ", expected one such as 'float16' or 'F16'");
  return *dtype;
}

Argument read_argument(const Json& value, const std::string& where) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return core::to_int64(value, where);
  std::vector<int64_t> list;
  for (const Json& item : value) list.push_back(core::to_int64(item, where));
  return list;
}

namespace {

constexpr size_t kMaxSteps = 64;

ShardStep read_step(const Json& value, const std::string& where) {
  check<FormatError>(value.is_array() && !value.empty() && value[0].is_string(), where,
                     ": expected [function, argument…], got ", value.type_name());
  ShardStep step;
  step.function = value[0].get<std::string>();
  for (size_t i = 1; i < value.size(); ++i) {
    step.arguments.push_back(read_argument(value[i], core::join(where, " argument ", i)));
  }
  return step;
}

void read_steps(const Json& value, const std::string& where, ParamRule& rule) {
  check_steps(value, where);
  for (size_t i = 0; i < value.size(); ++i) {
    rule.steps.push_back(read_step(value[i], core::join(where, ": step ", i + 1)));
  }
}

void check_keys(const Json& object, const std::set<std::string>& known, const std::string& where) {
  for (const auto& [key, value] : object.items()) {
    std::string names;
    for (const std::string& name : known) names.append(names.empty() ? "" : ", ").append(name);
    check<FormatError>(known.contains(key), where, ": unknown key ", quote(key), ", expected ",
                       names);
  }
}

ParamRule read_rule(const std::string& name, const Json& value, const std::string& where) {
  ParamRule rule;
  rule.name = name;
  if (value.is_array()) {
    read_steps(value, where, rule);
    return rule;
  }
  check<FormatError>(value.is_object(), where,
                     ": expected a list of steps or an object with \"steps\", got ",
                     value.type_name());
  check_keys(value, {"dtype", "from", "shape", "steps"}, where);
  if (const Json* from = core::find(value, "from", where)) {
    check<FormatError>(from->is_array() && !from->empty(), where,
                       ": \"from\": expected a list of tensors");
    for (const Json& source : *from) {
      rule.from.push_back(core::to_string(source, where + ": \"from\""));
    }
  }
  if (const Json* shape = core::find(value, "shape", where)) {
    rule.shape = read_shape(*shape, where + ": \"shape\"");
  }
  if (const Json* dtype = core::find(value, "dtype", where)) {
    rule.dtype = read_dtype(*dtype, where + ": \"dtype\"");
  }
  read_steps(core::require(value, "steps", where), where, rule);
  return rule;
}

ShardInfo read_weft(const Json& root, const std::string& where) {
  check_keys(root, {"format", "others", "params", "version"}, where);
  const std::string format = core::to_string(root["format"], where + ": \"format\"");
  check<FormatError>(format == "weft.shard_info", where, ": format ", quote(format),
                     ", expected 'weft.shard_info'");
  const int64_t version =
      core::to_int64(core::require(root, "version", where), where + ": \"version\"");
  check<FormatError>(version == 1, where, ": version ", version, ", expected 1; update weft");
  ShardInfo info;
  if (const Json* others = core::find(root, "others", where)) {
    const std::string text = core::to_string(*others, where + ": \"others\"");
    check<FormatError>(text == "replicate" || text == "error", where, ": \"others\": ", quote(text),
                       ", expected 'replicate' or 'error'");
    info.replicates_others = text == "replicate";
  }
  const Json& params = core::require(root, "params", where);
  check<FormatError>(params.is_object(), where, ": \"params\": expected an object, got ",
                     params.type_name());
  for (const auto& [name, value] : params.items()) {
    info.params.push_back(read_rule(name, value, parameter_where(where, name)));
  }
  return info;
}

Json argument_json(const Argument& argument) {
  return std::visit([](const auto& value) { return Json(value); }, argument);
}

Json rule_json(const ParamRule& rule) {
  Json steps = Json::array();
  for (const ShardStep& step : rule.steps) {
    core::check<core::ConfigError>(!step.output && !step.input_shape && !rule.is_stacked,
                                   "io.to_json: parameter ", quote(rule.name),
                                   ": made for a number of ranks; write it with weft's functions");
    Json list = Json::array({step.function});
    for (const Argument& argument : step.arguments) list.push_back(argument_json(argument));
    steps.push_back(std::move(list));
  }
  if (rule.from.empty() && !rule.shape && !rule.dtype) return steps;
  Json object = {{"steps", std::move(steps)}};
  if (!rule.from.empty()) object["from"] = rule.from;
  if (rule.shape) object["shape"] = *rule.shape;
  if (rule.dtype) object["dtype"] = std::string(info(*rule.dtype).name);
  return object;
}

}  // namespace

std::string parameter_where(const std::string& where, const std::string& name) {
  return core::join(where, ": parameter ", quote(name));
}

void check_steps(const Json& value, const std::string& where) {
  check<FormatError>(value.is_array(), where, ": expected a list of steps, got ",
                     value.type_name());
  check<FormatError>(value.size() <= kMaxSteps, where, ": ", value.size(),
                     " steps, expected at most ", kMaxSteps);
}

ShardInfo ShardInfo::parse(std::string_view text, const std::string& where) {
  const Json root = core::parse_json(text, where);
  const bool is_list = root.is_array() && !root.empty() && root[0].is_object();
  check<FormatError>(root.is_object() || is_list, where, ": expected an object, got ",
                     root.type_name());
  const auto format = is_list ? root.end() : root.find("format");
  const bool is_weft = format != root.end() && format->is_string();
  ShardInfo info = is_weft ? read_weft(root, where) : read_foreign(root, where);
  info.where = where;
  return info;
}

ShardInfo ShardInfo::read(const std::string& path) {
  return parse(core::read_text_file(path, core::JsonLimits{}.max_bytes), path);
}

std::string to_json(const ShardInfo& info) {
  Json params = Json::object();
  for (const ParamRule& rule : info.params) params[rule.name] = rule_json(rule);
  return core::dump_json(Json{{"format", "weft.shard_info"},
                              {"version", 1},
                              {"others", info.replicates_others ? "replicate" : "error"},
                              {"params", std::move(params)}});
}

}  // namespace weft::io
