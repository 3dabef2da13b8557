#include "weft/models/decoder/weights/fused_rows.h"

#include <algorithm>

#include "weft/models/config/families.h"
#include "weft/models/decoder/weight_table.h"

namespace weft::models {
namespace {

constexpr Part kQueryKeyValue[] = {Part::kQuery, Part::kKey, Part::kValue};
constexpr Part kGateUp[] = {Part::kGate, Part::kUp};
constexpr FusedRow kFusedRows[] = {
    {"model.layers.*.self_attn.qkv_proj", "blk.*.attn_qkv", kQueryKeyValue},
    {"model.layers.*.mlp.gate_up_proj", "blk.*.ffn_up", kGateUp},
};

constexpr Part kDeltaInputs[] = {Part::kDeltaChannels, Part::kDeltaGate};
constexpr Part kDeltaNumbers[] = {Part::kDeltaRate, Part::kDeltaDecay};
constexpr FusedRow kDeltaRows[] = {
    {"model.layers.*.linear_attn.in_proj_qkvz", "blk.*.ssm_in", kDeltaInputs, false, true, true},
    {"model.layers.*.linear_attn.in_proj_ba", "blk.*.ssm_ba", kDeltaNumbers, false, true},
};

constexpr Part kExpertGateUp[] = {Part::kExpertGate, Part::kExpertUp};
constexpr Part kExpertDownAlone[] = {Part::kExpertDown};
constexpr FusedRow kFusedOssExperts[] = {
    {"model.layers.*.mlp.experts.gate_up_proj", {}, kExpertGateUp, true},
    {"model.layers.*.mlp.experts.down_proj", {}, kExpertDownAlone},
};

// Not interleaved, nor transposed.
constexpr FusedRow kFusedUsualExperts[] = {
    {"model.layers.*.mlp.experts.gate_up_proj", "blk.*.ffn_gate_up_exps", kExpertGateUp},
    {"model.layers.*.mlp.experts.down_proj", {}, kExpertDownAlone},
};
constexpr FusedRow kFusedGemma4Experts[] = {
    {.model = "model.layers.*.experts.gate_up_proj",
     .gguf = "blk.*.ffn_gate_up_exps",
     .parts = kExpertGateUp,
     .is_written_to_gguf = true},
    {"model.layers.*.experts.down_proj", {}, kExpertDownAlone},
};

const FusedRow* row_with(std::span<const FusedRow> rows, Part part) {
  const auto has_part = [&](const FusedRow& row) {
    return std::ranges::find(row.parts, part) != row.parts.end();
  };
  const auto found = std::ranges::find_if(rows, has_part);
  return found == rows.end() ? nullptr : &*found;
}

}  // namespace

const FusedRow* fused_row(const ModelConfig& config, Part part) {
  const FamilyInfo* family = find_family_info(config.family);
  const FusedRows rows = family == nullptr ? FusedRows::kNone : family->fused_rows;
  switch (rows) {
    case FusedRows::kNone:
      return nullptr;
    case FusedRows::kGateUp:
      return row_with(std::span(kFusedRows).last(1), part);
    case FusedRows::kAll:
      return row_with(kFusedRows, part);
    case FusedRows::kDeltaGroups:
      return row_with(kDeltaRows, part);
  }
  return nullptr;
}

const FusedRow* fused_experts_row(const ModelConfig& config, Part part) {
  const FamilyInfo* family = find_family_info(config.family);
  if (family == nullptr) return nullptr;
  switch (family->experts.names) {
    case ExpertNames::kUsual:
      return row_with(kFusedUsualExperts, part);
    case ExpertNames::kMixtral:
      return nullptr;
    case ExpertNames::kOss:
      return row_with(kFusedOssExperts, part);
    case ExpertNames::kGemma4:
      return row_with(kFusedGemma4Experts, part);
  }
  return nullptr;
}

const FusedRow* written_gguf_row(const ModelConfig& config, Part part) {
  const FusedRow* experts = is_expert_part(part) ? fused_experts_row(config, part) : nullptr;
  if (experts != nullptr && experts->is_written_to_gguf) return experts;
  const FusedRow* fused = fused_row(config, part);
  return fused == nullptr || fused->is_apart_in_gguf ? nullptr : fused;
}

FusedPlace fused_place(const ModelConfig& config, const FusedRow& fused, Part part) {
  FusedPlace place;
  for (const Part other : fused.parts) {
    if (other == part) place.first_row = place.num_rows;
    place.num_rows += size_of(config, weight_row(config, {other}).shape.out);
  }
  return place;
}

std::vector<RowGroups::Piece> RowGroups::pieces(const shard::Range& rows) const {
  if (num_groups == 0) return {{rows.start, rows.start, rows.length}};
  int64_t group_rows = 0;
  for (const int64_t length : lengths) group_rows += length;
  std::vector<Piece> pieces;
  int64_t first = 0, offset = 0;
  for (const int64_t length : lengths) {
    for (int64_t group = 0; group < num_groups; ++group, first += length) {
      const int64_t start = std::max(first, rows.start);
      const int64_t end = std::min(first + length, rows.end());
      if (start >= end) continue;
      pieces.push_back({start, group * group_rows + offset + start - first, end - start});
    }
    offset += length;
  }
  return pieces;
}

bool is_joined_in_folders(const ModelConfig& config, Part part) {
  const bool is_stacked = is_expert_part(part) && has_stacked_experts(family_info(config));
  return is_stacked || fused_row(config, part) != nullptr;
}

RowGroups row_groups(const ModelConfig& config, const FusedRow& fused) {
  if (!fused.is_grouped) return {};
  const nn::DeltaHeads& heads = config.recurrent.heads;
  const int64_t each = heads.num_value_heads / heads.num_key_heads;
  if (fused.parts.front() == Part::kDeltaRate) return {heads.num_key_heads, {each, each}};
  const int64_t features = each * heads.value_dim;
  return {heads.num_key_heads, {heads.key_dim, heads.key_dim, features, features}};
}

}  // namespace weft::models
