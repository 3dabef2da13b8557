#include "weft/io/shard_info/param_sources.h"

#include <map>
#include <set>

#include "weft/core/error.h"
#include "weft/io/shard_info/name_pattern.h"
#include "weft/io/shard_info/shard_info_json.h"

namespace weft::io {

using core::check;
using core::fail;
using core::FormatError;
using core::quote;

namespace {

using Numbers = std::vector<std::string>;

// Collects parameters by name; the more literal rule wins.
class Sources {
 public:
  Sources(const TensorFile& file, const ShardInfo& info) : file_(file), info_(info) {
    for (const TensorMeta& tensor : file.tensors()) {
      by_mask_[masked_name(tensor.name)].push_back(&tensor);
    }
  }

  void add_rule(const ParamRule& rule) {
    const std::string where = parameter_where(info_.where, rule.name);
    const std::string& pattern = rule.from.empty() ? rule.name : rule.from[0];
    if (num_stars(pattern) == 0) {
      add(rule, {}, where);
      return;
    }
    size_t count = 0;
    const auto alike = by_mask_.find(masked_name(pattern));
    const auto& tensors = alike == by_mask_.end() ? none_ : alike->second;
    for (const TensorMeta* tensor : tensors) {
      if (const auto numbers = match_pattern(pattern, tensor->name)) {
        add(rule, *numbers, where);
        ++count;
      }
    }
    check<FormatError>(count > 0, where, ": ", quote(pattern), " fits no tensor of ", file_.path(),
                       "; * is one dotted segment of digits");
  }

  std::vector<ParamSources> finish() {
    std::vector<ParamSources> list;
    const std::set<std::string> unread(info_.unread.begin(), info_.unread.end());
    for (const TensorMeta& tensor : file_.tensors()) {
      if (used_.contains(&tensor) || by_name_.contains(tensor.name)) continue;
      if (unread.contains(tensor.name)) continue;
      check<FormatError>(info_.replicates_others, info_.where, ": tensor ", quote(tensor.name),
                         " of ", file_.path(),
                         " is in no rule; add one, or \"others\": \"replicate\"");
      by_name_[tensor.name] = {tensor.name, {&tensor}, nullptr};
    }
    for (auto& [name, param] : by_name_) list.push_back(std::move(param));
    return list;
  }

 private:
  void add(const ParamRule& rule, const Numbers& numbers, const std::string& where) {
    ParamSources param{filled(rule.name, numbers, where), {}, &rule};
    if (rule.from.empty()) {
      param.tensors.push_back(&require(param.name, where));
    }
    for (const std::string& source : rule.from) {
      param.tensors.push_back(&require(filled(source, numbers, where), where));
    }
    for (const TensorMeta* tensor : param.tensors) used_.insert(tensor);
    const TensorMeta& first = *param.tensors[0];
    const TensorType type{rule.shape.value_or(first.shape), rule.dtype.value_or(first.dtype)};
    check<FormatError>(type == TensorType{first.shape, first.dtype}, where, ": tensor ",
                       quote(first.name), " is ", to_text(TensorType{first.shape, first.dtype}),
                       ", expected ", to_text(type), "; check that it is the right model");
    put(std::move(param));
  }

  void put(ParamSources param) {
    const auto [entry, is_new] = by_name_.try_emplace(param.name, param);
    if (is_new) return;
    const size_t stars = num_stars(param.rule->name);
    const size_t other_stars = num_stars(entry->second.rule->name);
    check<FormatError>(stars != other_stars, info_.where, ": parameter ", quote(param.name),
                       " fits ", quote(entry->second.rule->name), " and ", quote(param.rule->name),
                       "; name it in a rule of its own");
    if (stars < other_stars) entry->second = std::move(param);
  }

  static std::string filled(const std::string& pattern, const Numbers& numbers,
                            const std::string& where) {
    const auto name = fill_pattern(pattern, numbers);
    check<FormatError>(name.has_value(), where, ": ", quote(pattern), " has ", num_stars(pattern),
                       " *, expected ", numbers.size(), " as in the others");
    return *name;
  }

  const TensorMeta& require(const std::string& name, const std::string& where) const {
    try {
      return file_.require(name);
    } catch (const FormatError& error) {
      fail<FormatError>(where, ": ", error.what());
    }
  }

  const TensorFile& file_;
  const ShardInfo& info_;
  // Few of them fit a pattern.
  std::map<std::string, std::vector<const TensorMeta*>> by_mask_;
  const std::vector<const TensorMeta*> none_;
  std::map<std::string, ParamSources> by_name_;
  std::set<const TensorMeta*> used_;
};

}  // namespace

std::vector<ParamSources> param_sources(const TensorFile& file, const ShardInfo& info) {
  Sources sources(file, info);
  for (const ParamRule& rule : info.params) sources.add_rule(rule);
  return sources.finish();
}

}  // namespace weft::io
