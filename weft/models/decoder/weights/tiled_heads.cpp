#include "weft/models/decoder/weights/tiled_heads.h"

#include "weft/models/config/families.h"

// Source: llama.cpp's conversion/qwen.py.

namespace weft::models {

std::vector<shard::Range> TiledHeads::runs(int64_t outer, int64_t inner) const {
  std::vector<shard::Range> ranges;
  if (first > 0) ranges.push_back({0, first});
  for (int64_t i = 0; i < outer; ++i) {
    for (int64_t j = 0; j < inner; ++j)
      ranges.push_back({first + (j * outer + i) * length, length});
  }
  return ranges;
}

TiledHeads tiled_heads(const ModelConfig& config, Part part) {
  const FamilyInfo* family = find_family_info(config.family);
  if (family == nullptr || !family->tiles_value_heads) return {};
  const nn::DeltaHeads& heads = config.recurrent.heads;
  const int64_t tiles = heads.num_value_heads / heads.num_key_heads;
  switch (part) {
    case Part::kDeltaChannels:
    case Part::kConvolution:
      return {heads.num_key_heads, tiles, 2 * heads.key_features(), heads.value_dim};
    case Part::kDeltaGate:
    case Part::kDeltaOut:
      return {heads.num_key_heads, tiles, 0, heads.value_dim};
    case Part::kDeltaRate:
    case Part::kDeltaDecay:
    case Part::kDeltaDecayLog:
    case Part::kDeltaStepBias:
      return {heads.num_key_heads, tiles, 0, 1};
    default:
      return {};
  }
}

void add_head_order(const ModelConfig& config, Part part, WeightRule& rule) {
  const TiledHeads heads = tiled_heads(config, part);
  if (heads.is_plain()) return;
  if (part == Part::kDeltaOut) {
    rule.column_runs = heads.in_gguf();
    return;
  }
  std::vector<int64_t> starts, lengths;
  for (const shard::Range& range : heads.in_gguf()) {
    starts.push_back(range.start);
    lengths.push_back(range.length);
  }
  rule.reorder.push_back({"ranges", {int64_t{0}, std::move(starts), std::move(lengths)}, {}, {}});
}

}  // namespace weft::models
