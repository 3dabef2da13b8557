#pragma once

#include <optional>
#include <string_view>

#include "weft/shard/layout.h"

namespace weft::nn {

/// What a layer adds that knows how its own parameters are cut over the ranks.
class CutParameters {
 public:
  virtual ~CutParameters() = default;
  /// What every rank holds of the parameter of that name; none: each has all of it.
  virtual std::optional<shard::Layout> layout_of(std::string_view parameter) const = 0;
};

}  // namespace weft::nn
