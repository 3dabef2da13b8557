#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "weft/models/options/options.h"
#include "weft/models/passes/pass.h"

namespace weft::models {

/// A pass for speed, which runs weights that are held in one way.
struct PassRow {
  /// In messages: what it runs on.
  std::string_view name;
  /// What it computes beside the plain decoder: a model that uses any other option runs without it.
  OptionSet known;
  /// Those of them that it computes where PassParts::is_exact; nothing where it knows no order of
  /// sums.
  std::optional<OptionSet> known_in_order;
  /// In messages: what it costs to run without it.
  std::string_view cost;
  /// Whether the modules hold their weights as it wants them.
  bool (*is_wanted)(const PassParts& parts);
  std::unique_ptr<Pass> (*make)(const PassParts& parts);
};

/// The passes for speed of this build, the first that can run is the one to take.
std::span<const PassRow> pass_table();

}  // namespace weft::models
