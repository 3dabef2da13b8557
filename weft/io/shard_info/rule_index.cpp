#include "weft/io/shard_info/rule_index.h"

#include "weft/io/shard_info/name_pattern.h"

namespace weft::io {

RuleIndex::RuleIndex(const ShardInfo& info) {
  for (const ParamRule& rule : info.params) {
    if (num_stars(rule.name) == 0) {
      literal_.emplace(rule.name, &rule);
    } else {
      patterns_[masked_name(rule.name)].push_back(&rule);
    }
  }
}

const ParamRule* RuleIndex::find(const std::string& name) const {
  const auto exact = literal_.find(name);
  if (exact != literal_.end()) return exact->second;
  const auto alike = patterns_.find(masked_name(name));
  if (alike == patterns_.end()) return nullptr;
  const ParamRule* best = nullptr;
  for (const ParamRule* rule : alike->second) {
    if (!match_pattern(rule->name, name)) continue;
    if (best == nullptr || num_stars(rule->name) < num_stars(best->name)) best = rule;
  }
  return best;
}

}  // namespace weft::io
