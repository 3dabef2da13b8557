#pragma once

#include <cstdint>
#include <vector>

#include "weft/models/config/config.h"
#include "weft/models/decoder/decoder_names.h"
#include "weft/models/load/weight_rules.h"

namespace weft::models {

/// The value heads of gated delta nets in the GGUF of FamilyInfo::tiles_value_heads: the first one
/// of every key head, then the second one of every key head, and so on, where the model has those
/// of a key head side by side. Of a part that has something of each value head: what comes before
/// them, and how much each has.
struct TiledHeads {
  int64_t num_key_heads = 0;
  /// Value heads of a key head.
  int64_t num_tiles = 0;
  int64_t first = 0;
  int64_t length = 0;

  /// Whether the two orders are the same.
  bool is_plain() const { return num_tiles <= 1 || num_key_heads <= 1; }
  /// In the model's order, where GGUF has each part; and the other way round. What comes before is
  /// one range.
  std::vector<shard::Range> in_gguf() const { return runs(num_key_heads, num_tiles); }
  std::vector<shard::Range> in_model() const { return runs(num_tiles, num_key_heads); }

 private:
  std::vector<shard::Range> runs(int64_t outer, int64_t inner) const;
};

/// Those of a part; plain for other families, and for parts without value heads.
TiledHeads tiled_heads(const ModelConfig& config, Part part);

/// Puts what a GGUF file has of the heads into the model's order.
void add_head_order(const ModelConfig& config, Part part, WeightRule& rule);

}  // namespace weft::models
