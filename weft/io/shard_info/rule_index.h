#pragma once

#include <map>
#include <string>
#include <vector>

#include "weft/io/shard_info/shard_info.h"

namespace weft::io {

/// Finds rules by a parameter's name without looking at each: a model of experts has tens of
/// thousands of both.
class RuleIndex {
 public:
  /// Points into `info`, which must outlive it.
  explicit RuleIndex(const ShardInfo& info);

  /// The rule whose name fits `name`, of several the one with fewest `*`; null if none does.
  const ParamRule* find(const std::string& name) const;

 private:
  std::map<std::string, const ParamRule*> literal_;
  /// By masked_name.
  std::map<std::string, std::vector<const ParamRule*>> patterns_;
};

}  // namespace weft::io
