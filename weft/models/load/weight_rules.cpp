#include "weft/models/load/weight_rules.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>

#include "weft/core/error.h"
#include "weft/io/shard_info/rule_index.h"

namespace weft::models {
namespace {

using core::check;
using core::FormatError;
using core::quote;

constexpr char kWeight[] = ".weight";

std::string without_weight(const std::string& name) {
  return name.ends_with(kWeight) ? name.substr(0, name.size() - (sizeof(kWeight) - 1)) : name;
}

io::ParamRule vector_rule(const io::TensorFile& file, const WeightRule& weight,
                          const WeightRules& rules) {
  const io::TensorMeta& tensor = file.require(weight.file_name);
  std::vector<int64_t> expected =
      weight.vector_shape(weight.stored_rows > 0 ? weight.stored_rows : weight.in);
  if (weight.stack_size > 0) expected.insert(expected.begin(), weight.stack_size);
  check<FormatError>(tensor.shape == expected, file.path(), ": tensor ", quote(tensor.name),
                     ": shape ", core::list_text(tensor.shape), ", expected ",
                     core::list_text(expected), "; the file and the model's config disagree");
  io::ParamRule rule;
  rule.name = weight.name;
  if (weight.file_name != weight.name) rule.from.push_back(weight.file_name);
  if (weight.stack_size > 0) {
    rule.steps.push_back({"select", {int64_t{0}, weight.stack_index}, {}, {}});
  }
  rule.steps.insert(rule.steps.end(), weight.reorder.begin(), weight.reorder.end());
  if (weight.cut != Cut::kWhole) {
    rule.steps.push_back(rules.splits.at(weight.split).step(0, 1, 1));
  }
  return rule;
}

io::ParamRule joined_rule(const io::TensorFile& file, const WeightRule& weight,
                          const WeightRules& rules) {
  io::ParamRule rule;
  rule.name = weight.name;
  rule.from = weight.sources;
  rule.steps = weight.reorder;
  for (const std::string& source : weight.sources) {
    const io::TensorMeta& tensor = file.require(source);
    check<core::ConfigError>(!io::info(tensor.dtype).is_block(), file.path(), ": tensor ",
                             quote(tensor.name), ": ", io::info(tensor.dtype).name, ", of which ",
                             quote(weight.name), " can't be made, expected F32, F16 or BF16");
  }
  if (weight.cut != Cut::kWhole) {
    const int64_t dim = weight.cut == Cut::kColumns ? 1 : 0;
    rule.steps.push_back(rules.splits.at(weight.split).step(dim, 1, 1));
  }
  return rule;
}

// The name with its first number as a pattern, and that number.
struct Numbered {
  std::string pattern;
  std::string number;
};

std::optional<Numbered> numbered(const std::string& name) {
  size_t start = 0;
  while (start <= name.size()) {
    const size_t end = std::min(name.find('.', start), name.size());
    const std::string segment = name.substr(start, end - start);
    const bool is_number =
        !segment.empty() &&
        std::all_of(segment.begin(), segment.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (is_number) return Numbered{name.substr(0, start) + "*" + name.substr(end), segment};
    start = end + 1;
  }
  return std::nullopt;
}

// The rule with its first number replaced everywhere, if it has the same one everywhere.
std::optional<io::ParamRule> pattern_of(const io::ParamRule& rule) {
  const auto name = numbered(rule.name);
  if (!name) return std::nullopt;
  io::ParamRule pattern = rule;
  pattern.name = name->pattern;
  for (std::string& source : pattern.from) {
    const auto from = numbered(source);
    if (!from || from->number != name->number) return std::nullopt;
    source = from->pattern;
  }
  return pattern;
}

bool same_steps(const io::ParamRule& a, const io::ParamRule& b) {
  return a.from == b.from &&
         std::equal(a.steps.begin(), a.steps.end(), b.steps.begin(), b.steps.end(),
                    [](const io::ShardStep& x, const io::ShardStep& y) {
                      return x.function == y.function && x.arguments == y.arguments;
                    });
}

}  // namespace

std::string WeightRule::base() const { return without_weight(name); }

std::vector<int64_t> WeightRule::vector_shape(int64_t length) const {
  std::vector<int64_t> shape = {length};
  shape.insert(shape.end(), element_shape.begin(), element_shape.end());
  return shape;
}

int64_t WeightRule::array_size() const {
  return std::accumulate(element_shape.begin(), element_shape.end(), int64_t{1},
                         std::multiplies<>());
}

io::MatrixRef WeightRule::matrix() const {
  return {without_weight(file_name), stored_rows > 0 ? stored_rows : out, in, stack_size,
          !reorder.empty()};
}

const WeightRule& WeightRules::find(const std::string& name) const {
  const auto at = std::find_if(weights.begin(), weights.end(),
                               [&](const WeightRule& weight) { return weight.name == name; });
  check<core::InternalError>(at != weights.end(), "models: no weight ", quote(name),
                             " in the model's rules");
  return *at;
}

void set_head_split(shard::HeadSplit split, WeightRules& rules) {
  for (auto& [name, cut] : rules.splits) cut.head_split = split;
}

shard::HeadSplit head_split_of(const io::ShardInfo& info) {
  const bool is_even = std::any_of(info.params.begin(), info.params.end(), [](const auto& rule) {
    return !rule.steps.empty() && rule.steps.back().function == io::kEvenHeads;
  });
  return is_even ? shard::HeadSplit::kEven : shard::HeadSplit::kKv;
}

io::ShardInfo shard_info(const io::TensorFile& file, const WeightRules& rules,
                         const io::ShardInfo* override, const QuantizationConfig* said) {
  io::ShardInfo info;
  info.where = file.path();
  info.unread = rules.unread;
  const io::ShardInfo none;
  const io::RuleIndex own(override == nullptr ? none : *override);
  for (const WeightRule& weight : rules.weights) {
    if (own.find(weight.name) != nullptr) continue;
    if (weight.is_vector() || !weight.sources.empty()) {
      info.params.push_back(weight.is_vector() ? vector_rule(file, weight, rules)
                                               : joined_rule(file, weight, rules));
      continue;
    }
    const DimSplit* split = weight.split.empty() ? nullptr : &rules.splits.at(weight.split);
    io::MatrixFormat format = io::matrix_format(file, weight.matrix());
    if (said != nullptr) take_stated(*said, weight.matrix(), format);
    for (io::ParamRule& rule :
         io::matrix_rules(weight.base(), format, {weight.reorder, weight.column_runs}, weight.cut,
                          split, weight.stack_index)) {
      info.params.push_back(std::move(rule));
    }
  }
  if (override != nullptr) {
    info.params.insert(info.params.end(), override->params.begin(), override->params.end());
    info.where = override->where;
    info.num_ranks = override->num_ranks;
  }
  return info;
}

io::ShardInfo with_patterns(const io::ShardInfo& info) {
  struct Group {
    io::ParamRule pattern;
    bool is_same = true;
  };
  std::map<std::string, Group> groups;
  for (const io::ParamRule& rule : info.params) {
    const auto pattern = pattern_of(rule);
    const auto name = numbered(rule.name);
    if (!name) continue;
    const auto [at, is_new] = groups.try_emplace(name->pattern, Group{pattern.value_or(rule)});
    at->second.is_same = at->second.is_same && pattern && same_steps(at->second.pattern, *pattern);
  }
  io::ShardInfo shorter = info;
  shorter.params.clear();
  for (const io::ParamRule& rule : info.params) {
    const auto name = numbered(rule.name);
    const auto group = name ? groups.find(name->pattern) : groups.end();
    if (!name || (group != groups.end() && !group->second.is_same)) {
      shorter.params.push_back(rule);
    } else if (group != groups.end()) {
      shorter.params.push_back(group->second.pattern);
      groups.erase(group);
    }
  }
  return shorter;
}

}  // namespace weft::models
