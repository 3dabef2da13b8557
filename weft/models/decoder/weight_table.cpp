#include "weft/models/decoder/weight_table.h"

#include <algorithm>
#include <string>

#include "weft/core/error.h"
#include "weft/models/config/families.h"
#include "weft/models/decoder/weights/gemma4_rows.h"
#include "weft/models/decoder/weights/recurrent_rows.h"
#include "weft/models/decoder/weights/weight_shapes.h"

namespace weft::models {
namespace {

using Dim = WeightDim;

bool has_mixtral_names(const ModelConfig& config) {
  const FamilyInfo* family = find_family_info(config.family);
  return family != nullptr && family->experts.names == ExpertNames::kMixtral;
}
bool has_usual_names(const ModelConfig& config) {
  const FamilyInfo* family = find_family_info(config.family);
  return family == nullptr || family->experts.names == ExpertNames::kUsual;
}
bool is_unlike_lfm2(const ModelConfig& config) { return !is_lfm2(config); }
bool is_untied(const ModelConfig& config) { return !config.is_tied; }
bool norms_before(const ModelConfig& config) {
  return has_norms_before(config.norm_placement) && !is_lfm2(config);
}
bool has_late_ffn_norm_name(const ModelConfig& config) {
  const FamilyInfo* family = find_family_info(config.family);
  return family != nullptr && family->has_late_ffn_norm_name;
}
bool norms_before_alone(const ModelConfig& config) {
  return config.norm_placement == NormPlacement::kBefore && !has_late_ffn_norm_name(config) &&
         !is_lfm2(config);
}
bool is_glm4(const ModelConfig& config) {
  const FamilyInfo* family = find_family_info(config.family);
  return family != nullptr && family->has_glm_norm_names;
}
bool norms_both(const ModelConfig& config) {
  return config.norm_placement == NormPlacement::kBoth && !is_glm4(config);
}
bool norms_after_unlike_glm4(const ModelConfig& config) {
  return has_norms_after(config.norm_placement) && !is_glm4(config);
}
bool norms_each_head(const ModelConfig& config) {
  return config.head_norms == HeadNorms::kEachHead && !is_lfm2(config);
}
bool norms_all_heads(const ModelConfig& config) {
  return config.head_norms == HeadNorms::kAllHeads;
}
bool has_sinks(const ModelConfig& config) { return config.has_sinks; }
bool is_oss(const ModelConfig& config) {
  const FamilyInfo* family = find_family_info(config.family);
  return family != nullptr && family->experts.names == ExpertNames::kOss;
}
bool has_shared_expert(const ModelConfig& config) {
  return config.experts.shared_ffn_width > 0 && config.experts.gates_shared;
}
bool has_whole_shared_expert(const ModelConfig& config) {
  return config.experts.shared_ffn_width > 0 && !config.experts.gates_shared;
}
bool is_latent(const ModelConfig& config) { return config.latent.is_used(); }
bool is_not_latent(const ModelConfig& config) { return !config.latent.is_used(); }
bool has_usual_output(const ModelConfig& config) {
  return is_not_latent(config) && !is_lfm2(config);
}
bool has_query_latent(const ModelConfig& config) { return config.latent.query_rank > 0; }
bool has_plain_queries(const ModelConfig& config) {
  return config.latent.query_rank == 0 && !config.gates_attention;
}
bool gates_attention(const ModelConfig& config) { return config.gates_attention; }
bool has_choice_bias(const ModelConfig& config) { return config.experts.has_choice_bias; }

bool is_plain(const ModelConfig& config, int64_t layer) {
  return config.has_plain_ffn(layer) && !has_reusing_ffn(config, layer);
}

constexpr WeightPresence kUntied = {is_untied};
constexpr WeightPresence kUsualOutput = {has_usual_output, has_usual_heads};
constexpr WeightPresence kUsualFinalNorm = {is_unlike_lfm2};
constexpr WeightPresence kLfm2FinalNorm = {is_lfm2};
constexpr WeightPresence kNormsBefore = {norms_before};
constexpr WeightPresence kNormsAfter = {norms_after_unlike_glm4};
constexpr WeightPresence kNormsOfGlm4 = {is_glm4};
constexpr WeightPresence kNormsBeforeAlone = {norms_before_alone};
constexpr WeightPresence kNormsBoth = {norms_both};
constexpr WeightPresence kQueryNormsEachHead = {norms_each_head, has_usual_heads};
constexpr WeightPresence kKeyNormsEachHead = {norms_each_head, has_usual_keys};
constexpr WeightPresence kNormsAllHeads = {norms_all_heads, has_usual_heads};
constexpr WeightPresence kLatent = {is_latent};
constexpr WeightPresence kNoLatent = {is_not_latent, has_usual_keys};
constexpr WeightPresence kQueryLatent = {has_query_latent};
constexpr WeightPresence kPlainQueries = {has_plain_queries, has_usual_heads};
constexpr WeightPresence kGatedQueries = {gates_attention, has_usual_heads};
constexpr WeightPresence kSinks = {has_sinks, has_usual_heads};
constexpr WeightPresence kLateFfnNorm = {has_late_ffn_norm_name};
constexpr WeightPresence kOssExperts = {is_oss, has_experts};
constexpr WeightPresence kPlainLayers = {is_unlike_lfm2, is_plain};
constexpr WeightPresence kUsualExperts = {has_usual_names, has_experts};
constexpr WeightPresence kMixtralExperts = {has_mixtral_names, has_experts};
constexpr WeightPresence kSharedExpert = {has_shared_expert, has_experts};
constexpr WeightPresence kWholeSharedExpert = {has_whole_shared_expert, has_experts};
constexpr WeightPresence kChosenWithBias = {has_choice_bias, has_experts};

constexpr BiasFlag kMlpBias = [](const ModelConfig& config) { return config.has_mlp_bias; };
constexpr BiasFlag kRouterBias = [](const ModelConfig& config) {
  return config.experts.has_router_bias;
};
constexpr BiasFlag kExpertBias = [](const ModelConfig& config) { return config.experts.has_bias; };

// In the model's order. Of several rows of a part a layer has one; experts' rows stand together.
constexpr WeightRow kUsualRows[] = {
    {Part::kEmbedding, "model.embed_tokens", "token_embd", kVocabulary},
    {Part::kInputNorm, "model.layers.*.input_layernorm", "blk.*.attn_norm", kOfWidth, kNormsBefore},
    {Part::kQueryLatent, "model.layers.*.self_attn.q_a_proj", "blk.*.attn_q_a", kToQueryLatent,
     kQueryLatent},
    {Part::kQueryLatentNorm, "model.layers.*.self_attn.q_a_layernorm", "blk.*.attn_q_a_norm",
     kOfQueryLatent, kQueryLatent},
    {Part::kQuery, "model.layers.*.self_attn.q_b_proj", "blk.*.attn_q_b", kLatentToHeads,
     kQueryLatent},
    {Part::kQuery, "model.layers.*.self_attn.q_proj", "blk.*.attn_q", kToHeads, kPlainQueries,
     kQkvBias, true},
    {Part::kQuery, "model.layers.*.self_attn.q_proj", "blk.*.attn_q", kToGatedHeads, kGatedQueries,
     kQkvBias},
    {Part::kKvLatent, "model.layers.*.self_attn.kv_a_proj_with_mqa", "blk.*.attn_kv_a_mqa",
     kToKvLatent, kLatent},
    {Part::kKvLatentNorm, "model.layers.*.self_attn.kv_a_layernorm", "blk.*.attn_kv_a_norm",
     kOfKvLatent, kLatent},
    {Part::kKeyValue, "model.layers.*.self_attn.kv_b_proj", "blk.*.attn_kv_b", kLatentToKv,
     kLatent},
    {Part::kKey, "model.layers.*.self_attn.k_proj", "blk.*.attn_k", kToKvHeads, kNoLatent, kQkvBias,
     true},
    {Part::kValue, "model.layers.*.self_attn.v_proj", "blk.*.attn_v", kToKvHeads, kNoLatent,
     kQkvBias},
    {Part::kQueryNorm, "model.layers.*.self_attn.q_norm", "blk.*.attn_q_norm", kOfHead,
     kQueryNormsEachHead},
    {Part::kKeyNorm, "model.layers.*.self_attn.k_norm", "blk.*.attn_k_norm", kOfHead,
     kKeyNormsEachHead},
    {Part::kQueryNorm, "model.layers.*.self_attn.q_norm", "blk.*.attn_q_norm", kOfHeads,
     kNormsAllHeads},
    {Part::kKeyNorm, "model.layers.*.self_attn.k_norm", "blk.*.attn_k_norm", kOfKvHeads,
     kNormsAllHeads},
    {Part::kOutput, "model.layers.*.self_attn.o_proj", "blk.*.attn_output", kFromHeads,
     kUsualOutput, kOutputBias},
    {Part::kOutput, "model.layers.*.self_attn.o_proj", "blk.*.attn_output", kFromValueHeads,
     kLatent},
    {Part::kSinks, "model.layers.*.self_attn.sinks", "blk.*.attn_sinks", kOfHeadCount, kSinks},
    {Part::kAttentionOutNorm, "model.layers.*.post_attention_layernorm",
     "blk.*.post_attention_norm", kOfWidth, kNormsAfter},
    {Part::kFfnNorm, "model.layers.*.post_attention_layernorm", "blk.*.post_attention_norm",
     kOfWidth, kLateFfnNorm},
    {Part::kFfnNorm, "model.layers.*.post_attention_layernorm", "blk.*.ffn_norm", kOfWidth,
     kNormsBeforeAlone},
    {Part::kAttentionOutNorm, "model.layers.*.post_self_attn_layernorm",
     "blk.*.post_attention_norm", kOfWidth, kNormsOfGlm4},
    {Part::kFfnNorm, "model.layers.*.post_attention_layernorm", "blk.*.ffn_norm", kOfWidth,
     kNormsOfGlm4},
    {Part::kFfnOutNorm, "model.layers.*.post_mlp_layernorm", "blk.*.post_ffw_norm", kOfWidth,
     kNormsOfGlm4},
    {Part::kFfnNorm, "model.layers.*.pre_feedforward_layernorm", "blk.*.ffn_norm", kOfWidth,
     kNormsBoth},
    {Part::kFfnOutNorm, "model.layers.*.post_feedforward_layernorm", "blk.*.post_ffw_norm",
     kOfWidth, kNormsAfter},
    {Part::kGate, "model.layers.*.mlp.gate_proj", "blk.*.ffn_gate", kToFfn, kPlainLayers, kMlpBias},
    {Part::kUp, "model.layers.*.mlp.up_proj", "blk.*.ffn_up", kToFfn, kPlainLayers, kMlpBias},
    {Part::kDown, "model.layers.*.mlp.down_proj", "blk.*.ffn_down", kFromFfn, kPlainLayers,
     kMlpBias},
    {Part::kRouter, "model.layers.*.mlp.gate", "blk.*.ffn_gate_inp", kToExperts, kUsualExperts},
    {Part::kChoiceBias, "model.layers.*.mlp.gate.e_score_correction_bias", "blk.*.exp_probs_b",
     kOfExperts, kChosenWithBias},
    {Part::kRouter, "model.layers.*.mlp.router", "blk.*.ffn_gate_inp", kToExperts, kOssExperts,
     kRouterBias},
    {Part::kRouter, "model.layers.*.block_sparse_moe.gate", "blk.*.ffn_gate_inp", kToExperts,
     kMixtralExperts},
    {Part::kExpertGate, "model.layers.*.mlp.experts.#.gate_proj", "blk.*.ffn_gate_exps",
     kToExpertFfn, kOssExperts, kExpertBias, false, "model.layers.*.mlp.experts.gate_proj",
     "blk.*.ffn_gate.#"},
    {Part::kExpertUp, "model.layers.*.mlp.experts.#.up_proj", "blk.*.ffn_up_exps", kToExpertFfn,
     kOssExperts, kExpertBias, false, "model.layers.*.mlp.experts.up_proj", "blk.*.ffn_up.#"},
    {Part::kExpertDown, "model.layers.*.mlp.experts.#.down_proj", "blk.*.ffn_down_exps",
     kFromExpertFfn, kOssExperts, kExpertBias, false, "model.layers.*.mlp.experts.down_proj",
     "blk.*.ffn_down.#"},
    {Part::kExpertGate, "model.layers.*.mlp.experts.#.gate_proj", "blk.*.ffn_gate_exps",
     kToExpertFfn, kUsualExperts, nullptr, false, "model.layers.*.mlp.switch_mlp.gate_proj",
     "blk.*.ffn_gate.#"},
    {Part::kExpertUp, "model.layers.*.mlp.experts.#.up_proj", "blk.*.ffn_up_exps", kToExpertFfn,
     kUsualExperts, nullptr, false, "model.layers.*.mlp.switch_mlp.up_proj", "blk.*.ffn_up.#"},
    {Part::kExpertDown, "model.layers.*.mlp.experts.#.down_proj", "blk.*.ffn_down_exps",
     kFromExpertFfn, kUsualExperts, nullptr, false, "model.layers.*.mlp.switch_mlp.down_proj",
     "blk.*.ffn_down.#"},
    {Part::kExpertGate, "model.layers.*.block_sparse_moe.experts.#.w1", "blk.*.ffn_gate_exps",
     kToExpertFfn, kMixtralExperts, nullptr, false,
     "model.layers.*.block_sparse_moe.switch_mlp.gate_proj", "blk.*.ffn_gate.#"},
    {Part::kExpertUp, "model.layers.*.block_sparse_moe.experts.#.w3", "blk.*.ffn_up_exps",
     kToExpertFfn, kMixtralExperts, nullptr, false,
     "model.layers.*.block_sparse_moe.switch_mlp.up_proj", "blk.*.ffn_up.#"},
    {Part::kExpertDown, "model.layers.*.block_sparse_moe.experts.#.w2", "blk.*.ffn_down_exps",
     kFromExpertFfn, kMixtralExperts, nullptr, false,
     "model.layers.*.block_sparse_moe.switch_mlp.down_proj", "blk.*.ffn_down.#"},
    {Part::kSharedRouter, "model.layers.*.mlp.shared_expert_gate", "blk.*.ffn_gate_inp_shexp",
     kOneRow, kSharedExpert},
    {Part::kSharedGate, "model.layers.*.mlp.shared_expert.gate_proj", "blk.*.ffn_gate_shexp",
     kToSharedFfn, kSharedExpert},
    {Part::kSharedUp, "model.layers.*.mlp.shared_expert.up_proj", "blk.*.ffn_up_shexp",
     kToSharedFfn, kSharedExpert},
    {Part::kSharedDown, "model.layers.*.mlp.shared_expert.down_proj", "blk.*.ffn_down_shexp",
     kFromSharedFfn, kSharedExpert},
    {Part::kSharedGate, "model.layers.*.mlp.shared_experts.gate_proj", "blk.*.ffn_gate_shexp",
     kToSharedFfn, kWholeSharedExpert},
    {Part::kSharedUp, "model.layers.*.mlp.shared_experts.up_proj", "blk.*.ffn_up_shexp",
     kToSharedFfn, kWholeSharedExpert},
    {Part::kSharedDown, "model.layers.*.mlp.shared_experts.down_proj", "blk.*.ffn_down_shexp",
     kFromSharedFfn, kWholeSharedExpert},
    {Part::kFinalNorm, "model.norm", "output_norm", kOfWidth, kUsualFinalNorm},
    {Part::kFinalNorm, "model.embedding_norm", "token_embd_norm", kOfWidth, kLfm2FinalNorm},
    {Part::kHead, "lm_head", "output", kVocabulary, kUntied},
};

bool is_in_model(const WeightRow& row, const ModelConfig& config) {
  return row.presence.in_model == nullptr || row.presence.in_model(config);
}

bool is_in_layer(const WeightRow& row, const ModelConfig& config, int64_t layer) {
  return row.presence.in_layer == nullptr || row.presence.in_layer(config, layer);
}

using Row = const WeightRow*;

// Those of single families among the rows of layers.
const std::vector<WeightRow>& all_rows() {
  static const std::vector<WeightRow> rows = [] {
    std::vector<WeightRow> all(std::begin(kUsualRows), std::end(kUsualRows));
    const auto first = std::ranges::find(all, Part::kGate, &WeightRow::part) - all.begin();
    all.insert(all.begin() + first, gemma4_rows().begin(), gemma4_rows().end());
    all.insert(all.begin() + first, recurrent_rows().begin(), recurrent_rows().end());
    all.insert(all.begin() + 1, gemma4_model_rows().begin(), gemma4_model_rows().end());
    return all;
  }();
  return rows;
}

// Those of the rows that a layer has.
void add_rows(const ModelConfig& config, int64_t layer, int64_t expert,
              std::span<const WeightRow> rows, std::vector<PartPlace>& places) {
  for (const WeightRow& row : rows) {
    if (is_in_model(row, config) && is_in_layer(row, config, layer)) {
      places.push_back({row.part, layer, expert});
    }
  }
}

void add_layer(const ModelConfig& config, int64_t layer, Row first, Row last,
               std::vector<PartPlace>& places) {
  const auto of_expert = [](const WeightRow& row) { return row.is_of_expert(); };
  while (first != last) {
    const bool is_of_expert = first->is_of_expert();
    const Row end = is_of_expert ? std::find_if_not(first, last, of_expert) : first + 1;
    const int64_t count = is_of_expert ? config.experts.num_experts : 1;
    for (int64_t expert = 0; expert < count; ++expert) {
      add_rows(config, layer, expert, {first, end}, places);
    }
    first = end;
  }
}

}  // namespace

const WeightRow& weight_row(const ModelConfig& config, const PartPlace& place) {
  Row usual = nullptr, in_model = nullptr;
  for (const WeightRow& row : all_rows()) {
    if (row.part != place.part) continue;
    if (usual == nullptr) usual = &row;
    if (!is_in_model(row, config)) continue;
    if (!row.is_of_layer() || is_in_layer(row, config, place.layer)) return row;
    if (in_model == nullptr) in_model = &row;
  }
  core::check<core::InternalError>(usual != nullptr, "models: a weight without a row");
  return in_model == nullptr ? *usual : *in_model;
}

int64_t size_of(const ModelConfig& config, WeightDim dim) {
  switch (dim) {
    case Dim::kNone:
      return 0;
    case Dim::kOne:
      return 1;
    case Dim::kVocabulary:
      return config.vocab_size;
    case Dim::kWidth:
      return config.width;
    case Dim::kHead:
      return config.head_dim;
    case Dim::kHeads:
      return config.num_heads * config.head_dim;
    case Dim::kKvHeads:
      return config.num_kv_heads * config.head_dim;
    case Dim::kHeadCount:
      return config.num_heads;
    case Dim::kValueHeads:
      return config.num_heads * config.latent.value_dim;
    case Dim::kKeyValueHeads:
      return config.num_heads * (config.head_dim - config.rope_dims + config.latent.value_dim);
    case Dim::kQueryLatent:
      return config.latent.query_rank;
    case Dim::kKvLatent:
      return config.latent.kv_rank;
    case Dim::kKvLatentAndRope:
      return config.latent.kv_rank + config.rope_dims;
    case Dim::kFfn:
      return config.ffn_width;
    case Dim::kExperts:
      return config.experts.num_experts;
    case Dim::kExpertFfn:
      return config.experts.ffn_width;
    case Dim::kSharedFfn:
      return config.experts.shared_ffn_width;
    case Dim::kChannels:
      return config.width;
    case Dim::kGatedChannels:
      return 3 * config.width;
    case Dim::kTaps:
      return config.recurrent.num_taps;
    case Dim::kGatedHeads:
      return 2 * config.num_heads * config.head_dim;
    case Dim::kDeltaChannels:
      return config.recurrent.heads.num_channels();
    case Dim::kDeltaFeatures:
      return config.recurrent.heads.value_features();
    case Dim::kDeltaHeads:
      return config.recurrent.heads.num_value_heads;
    case Dim::kDeltaValue:
      return config.recurrent.heads.value_dim;
    default:
      return gemma4_size_of(config, dim);
  }
}

std::vector<PartPlace> weight_places(const ModelConfig& config) {
  const auto is_of_layer = [](const WeightRow& row) { return row.is_of_layer(); };
  const Row begin = all_rows().data(), end = begin + all_rows().size();
  const Row first_of_layer = std::find_if(begin, end, is_of_layer);
  const Row behind_layer = std::find_if_not(first_of_layer, end, is_of_layer);
  std::vector<PartPlace> places;
  const auto add = [&](Row first, Row last) {
    for (Row row = first; row != last; ++row) {
      if (is_in_model(*row, config)) places.push_back({row->part});
    }
  };
  add(begin, first_of_layer);
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    add_layer(config, layer, first_of_layer, behind_layer, places);
  }
  add(behind_layer, end);
  return places;
}

std::string filled_name(std::string_view name, const PartPlace& place) {
  std::string text;
  for (const char c : name) {
    if (c == '*') {
      text += std::to_string(place.layer);
    } else if (c == '#') {
      text += std::to_string(place.expert);
    } else {
      text += c;
    }
  }
  return text;
}

}  // namespace weft::models
