#pragma once

#include <string>
#include <vector>

#include "weft/io/shard_info/shard_info.h"
#include "weft/io/tensor_file.h"

namespace weft::io {

/// A parameter of a file by its own name, without patterns.
struct ParamSources {
  std::string name;
  std::vector<const TensorMeta*> tensors;
  /// nullptr: no rule mentions it.
  const ParamRule* rule = nullptr;
};

/// What the rules of `info` say about `file`: every parameter with its tensors, by name. Of several
/// rules for a name the one with fewer `*` is taken. Tensors that no rule uses are parameters
/// themselves, but for the unread. Throws FormatError: a tensor that is missing, a pattern that
/// fits nothing, two rules for one name, another type or shape than the rule says, tensors that no
/// rule mentions if those are errors.
std::vector<ParamSources> param_sources(const TensorFile& file, const ShardInfo& info);

}  // namespace weft::io
