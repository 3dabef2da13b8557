#include "weft/models/decoder/decoder_names.h"

#include <array>
#include <string_view>
#include <vector>

#include "weft/core/error.h"

namespace weft::models {
namespace {

// "*" stands for the layer, "#" for the expert.
struct NameRow {
  Part part;
  std::string_view model;
  std::string_view gguf;
};

constexpr std::array<NameRow, 22> kNames = {{
    {Part::kEmbedding, "model.embed_tokens", "token_embd"},
    {Part::kFinalNorm, "model.norm", "output_norm"},
    {Part::kHead, "lm_head", "output"},
    {Part::kInputNorm, "model.layers.*.input_layernorm", "blk.*.attn_norm"},
    {Part::kFfnNorm, "model.layers.*.post_attention_layernorm", "blk.*.ffn_norm"},
    {Part::kQuery, "model.layers.*.self_attn.q_proj", "blk.*.attn_q"},
    {Part::kKey, "model.layers.*.self_attn.k_proj", "blk.*.attn_k"},
    {Part::kValue, "model.layers.*.self_attn.v_proj", "blk.*.attn_v"},
    {Part::kOutput, "model.layers.*.self_attn.o_proj", "blk.*.attn_output"},
    {Part::kQueryNorm, "model.layers.*.self_attn.q_norm", "blk.*.attn_q_norm"},
    {Part::kKeyNorm, "model.layers.*.self_attn.k_norm", "blk.*.attn_k_norm"},
    {Part::kGate, "model.layers.*.mlp.gate_proj", "blk.*.ffn_gate"},
    {Part::kUp, "model.layers.*.mlp.up_proj", "blk.*.ffn_up"},
    {Part::kDown, "model.layers.*.mlp.down_proj", "blk.*.ffn_down"},
    {Part::kRouter, "model.layers.*.mlp.gate", "blk.*.ffn_gate_inp"},
    {Part::kExpertGate, "model.layers.*.mlp.experts.#.gate_proj", "blk.*.ffn_gate_exps"},
    {Part::kExpertUp, "model.layers.*.mlp.experts.#.up_proj", "blk.*.ffn_up_exps"},
    {Part::kExpertDown, "model.layers.*.mlp.experts.#.down_proj", "blk.*.ffn_down_exps"},
    {Part::kSharedRouter, "model.layers.*.mlp.shared_expert_gate", "blk.*.ffn_gate_inp_shexp"},
    {Part::kSharedGate, "model.layers.*.mlp.shared_expert.gate_proj", "blk.*.ffn_gate_shexp"},
    {Part::kSharedUp, "model.layers.*.mlp.shared_expert.up_proj", "blk.*.ffn_up_shexp"},
    {Part::kSharedDown, "model.layers.*.mlp.shared_expert.down_proj", "blk.*.ffn_down_shexp"},
}};

// Where Mixtral differs, and GGUF's names of single experts.
constexpr std::array<NameRow, 4> kMixtralNames = {{
    {Part::kRouter, "model.layers.*.block_sparse_moe.gate", ""},
    {Part::kExpertGate, "model.layers.*.block_sparse_moe.experts.#.w1", "blk.*.ffn_gate.#"},
    {Part::kExpertUp, "model.layers.*.block_sparse_moe.experts.#.w3", "blk.*.ffn_up.#"},
    {Part::kExpertDown, "model.layers.*.block_sparse_moe.experts.#.w2", "blk.*.ffn_down.#"},
}};

// What MLX writes for all experts of a layer.
constexpr std::array<NameRow, 3> kMlxNames = {{
    {Part::kExpertGate, "switch_mlp.gate_proj", ""},
    {Part::kExpertUp, "switch_mlp.up_proj", ""},
    {Part::kExpertDown, "switch_mlp.down_proj", ""},
}};

template <size_t N>
const NameRow* find_row(const std::array<NameRow, N>& table, Part part) {
  for (const NameRow& row : table) {
    if (row.part == part) return &row;
  }
  return nullptr;
}

const NameRow& usual_row(Part part) {
  const NameRow* row = find_row(kNames, part);
  core::check<core::InternalError>(row != nullptr, "models: a weight without name");
  return *row;
}

std::string filled(std::string_view pattern, const PartPlace& place) {
  std::string text;
  for (const char c : pattern) {
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

// Every place that a part has in the model.
std::vector<PartPlace> places_of(const NameRow& row, const ModelConfig& config) {
  const bool is_of_layer = row.model.find('*') != std::string_view::npos;
  const int64_t num_layers = is_of_layer ? config.num_layers : 1;
  const int64_t num_experts = is_expert_part(row.part) ? config.experts.num_experts : 1;
  std::vector<PartPlace> places;
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    for (int64_t expert = 0; expert < num_experts; ++expert) {
      places.push_back({row.part, layer, expert});
    }
  }
  return places;
}

}  // namespace

bool is_expert_part(Part part) {
  return part == Part::kExpertGate || part == Part::kExpertUp || part == Part::kExpertDown;
}

std::map<std::string, PartPlace> part_places(const ModelConfig& config) {
  std::map<std::string, PartPlace> places;
  for (const NameRow& row : kNames) {
    for (const PartPlace& place : places_of(row, config)) {
      places[model_name(config, place)] = place;
    }
  }
  return places;
}

std::string model_name(const ModelConfig& config, const PartPlace& place) {
  const NameRow* own = config.family == "mixtral" ? find_row(kMixtralNames, place.part) : nullptr;
  return filled(own == nullptr ? usual_row(place.part).model : own->model, place);
}

std::string gguf_name(const PartPlace& place) { return filled(usual_row(place.part).gguf, place); }

std::string mlx_experts_name(const ModelConfig& config, const PartPlace& place) {
  const NameRow* row = find_row(kMlxNames, place.part);
  core::check<core::InternalError>(row != nullptr, "models: not the weight of an expert");
  const char* layer =
      config.family == "mixtral" ? "model.layers.*.block_sparse_moe." : "model.layers.*.mlp.";
  return filled(layer, place) + std::string(row->model);
}

std::string old_gguf_expert_name(const PartPlace& place) {
  const NameRow* row = find_row(kMixtralNames, place.part);
  core::check<core::InternalError>(row != nullptr && !row->gguf.empty(),
                                   "models: not the weight of an expert");
  return filled(row->gguf, place);
}

}  // namespace weft::models
