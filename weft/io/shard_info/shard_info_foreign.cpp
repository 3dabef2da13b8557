#include <nlohmann/json.hpp>
#include <set>

#include "weft/core/error.h"
#include "weft/core/json.h"
#include "weft/io/shard_info/shard_info_json.h"

// The forms that TVM (ShardLoader) and MLC-LLM publish.

namespace weft::io {

using core::check;
using core::FormatError;
using core::Json;
using core::quote;

namespace {

// [function, [shape, dtype], integer…]
ShardStep read_tvm_step(const Json& value, const std::string& where) {
  check<FormatError>(
      value.is_array() && value.size() >= 2 && value[0].is_string(), where,
      ": expected [function, [shape, dtype], integer…], got ",
      value.is_array() ? core::join("a list of ", value.size()) : std::string(value.type_name()));
  const Json& result = value[1];
  check<FormatError>(result.is_array() && result.size() == 2, where,
                     ": result: expected [shape, dtype], got ",
                     result.is_array() ? core::join("a list of ", result.size())
                                       : std::string(result.type_name()));
  ShardStep step;
  step.function = value[0].get<std::string>();
  step.output = TensorType{read_shape(result[0], where + ": result shape"),
                           read_dtype(result[1], where + ": result type")};
  for (size_t i = 2; i < value.size(); ++i) {
    step.arguments.emplace_back(core::to_int64(value[i], core::join(where, " extra ", i - 1)));
  }
  return step;
}

// {"func_name", "in_shape", "out_shape", "out_dtype"}; MLC's first files say "func".
ShardStep read_mlc_step(const Json& value, const std::string& where) {
  const Json* old_name = core::find(value, "func", where);
  ShardStep step;
  step.function =
      core::to_string(old_name == nullptr ? core::require(value, "func_name", where) : *old_name,
                      where + ": func_name");
  step.output =
      TensorType{read_shape(core::require(value, "out_shape", where), where + ": out_shape"),
                 read_dtype(core::require(value, "out_dtype", where), where + ": out_dtype")};
  if (const Json* shape = core::find(value, "in_shape", where)) {
    step.input_shape = read_shape(*shape, where + ": in_shape");
  }
  return step;
}

// The older form: the dim that is cut, or -1.
void read_dim(int64_t dim, const std::string& where, ParamRule& rule) {
  check<FormatError>(dim >= -1, where, ": dim ", dim, ", expected -1 (replicate) or a dim");
  if (dim < 0) return;
  ShardStep step;
  step.function = "shard";
  step.arguments.emplace_back(dim);
  rule.steps.push_back(std::move(step));
}

ParamRule read_foreign_rule(const std::string& name, const Json& value, const std::string& where) {
  ParamRule rule;
  rule.name = name;
  if (value.is_number()) {
    read_dim(core::to_int64(value, where), where, rule);
    return rule;
  }
  check_steps(value, where);
  for (size_t i = 0; i < value.size(); ++i) {
    const std::string step = core::join(where, ": step ", i + 1);
    rule.steps.push_back(value[i].is_object() ? read_mlc_step(value[i], step)
                                              : read_tvm_step(value[i], step));
  }
  rule.is_stacked = !rule.steps.empty();
  return rule;
}

ShardInfo read_mlc_metadata(const Json& root, const std::string& where) {
  ShardInfo info;
  std::set<std::string> names;
  for (const Json& param : root["params"]) {
    const std::string at = core::join(where, ": params[", info.params.size(), "]");
    const std::string name = core::to_string(core::require(param, "name", at), at + ": name");
    check<FormatError>(names.insert(name).second, where, ": parameter ", quote(name),
                       " stands twice");
    const Json* steps = core::find(param, "preprocs", at);
    info.params.push_back(read_foreign_rule(name, steps == nullptr ? Json::array() : *steps,
                                            parameter_where(where, name)));
  }
  if (const Json* shards = core::find(root, "tensor_parallel_shards", where)) {
    info.num_ranks = core::to_int64(*shards, where + ": tensor_parallel_shards");
    check<FormatError>(*info.num_ranks >= 1, where, ": tensor_parallel_shards ", *info.num_ranks,
                       ", expected at least 1");
  }
  return info;
}

// [{"name", "shard_dim"}…]
ShardInfo read_list(const Json& root, const std::string& where) {
  ShardInfo info;
  std::set<std::string> names;
  for (const Json& param : root) {
    const std::string at = core::join(where, ": [", info.params.size(), "]");
    check<FormatError>(param.is_object(), at, ": expected {\"name\", \"shard_dim\"}, got ",
                       param.type_name());
    ParamRule& rule = info.params.emplace_back();
    rule.name = core::to_string(core::require(param, "name", at), at + ": name");
    check<FormatError>(names.insert(rule.name).second, where, ": parameter ", quote(rule.name),
                       " stands twice");
    const std::string named = parameter_where(where, rule.name);
    read_dim(core::to_int64(core::require(param, "shard_dim", named), named), named, rule);
  }
  return info;
}

}  // namespace

ShardInfo read_foreign(const Json& root, const std::string& where) {
  if (root.is_array()) return read_list(root, where);
  const auto params = root.find("params");
  if (params != root.end() && params->is_array() && !params->empty() && (*params)[0].is_object() &&
      (*params)[0].contains("name")) {
    return read_mlc_metadata(root, where);
  }
  ShardInfo info;
  for (const auto& [name, value] : root.items()) {
    info.params.push_back(read_foreign_rule(name, value, parameter_where(where, name)));
  }
  return info;
}

}  // namespace weft::io
