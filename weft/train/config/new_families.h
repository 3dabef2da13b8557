#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "weft/core/error.h"

namespace weft::train {

/// A family that a new model can be of, and what it has beside the weights of every decoder. The
/// rest of what a family is stands in models::families. Experts have no keys in a run's file, and a
/// run writes no fused weights, as Phi-3's files have them.
struct NewFamily {
  std::string_view name;
  /// Of queries, keys and values.
  bool has_qkv_bias = false;
  /// Norms of queries and keys: head by head, or over all heads together.
  bool has_head_norms = false;
  bool has_norms_over_heads = false;
  /// Norms before attention and feed-forward layers and after them.
  bool has_norms_before_and_after = false;
};

/// All of them, in models::families' order.
inline constexpr std::array<NewFamily, 10> kNewFamilies = {{
    {.name = "llama"},
    {.name = "mistral"},
    {.name = "qwen2", .has_qkv_bias = true},
    {.name = "qwen3", .has_head_norms = true},
    {.name = "smollm3"},
    {.name = "granite"},
    {.name = "olmo2", .has_norms_over_heads = true},
    {.name = "gemma2", .has_norms_before_and_after = true},
    {.name = "gemma3_text", .has_head_norms = true, .has_norms_before_and_after = true},
    {.name = "ministral3"},
}};

/// Their names.
inline std::vector<std::string> new_family_names() {
  std::vector<std::string> names;
  for (const NewFamily& family : kNewFamilies) names.emplace_back(family.name);
  return names;
}

/// The row of a family. Throws ConfigError, which lists the names, for a name that there is not.
inline const NewFamily& new_family(std::string_view name) {
  const auto* const found = std::ranges::find(kNewFamilies, name, &NewFamily::name);
  core::check<core::ConfigError>(found != kNewFamilies.end(), "model.family: expected one of ",
                                 core::list_text(new_family_names()), ", got ",
                                 core::quote(std::string(name)));
  return *found;
}

}  // namespace weft::train
