#include "weft/models/llama/llama_rules.h"

#include <array>
#include <string_view>

#include "weft/core/error.h"

namespace weft::models {
namespace {

// The model's names (Hugging Face's) and those of GGUF. "*" stands for the layer.
struct NameRow {
  std::string_view model;
  std::string_view gguf;
};

constexpr std::array<NameRow, 12> kNames = {{
    {"model.embed_tokens", "token_embd"},
    {"model.norm", "output_norm"},
    {"lm_head", "output"},
    {"model.layers.*.input_layernorm", "blk.*.attn_norm"},
    {"model.layers.*.post_attention_layernorm", "blk.*.ffn_norm"},
    {"model.layers.*.self_attn.q_proj", "blk.*.attn_q"},
    {"model.layers.*.self_attn.k_proj", "blk.*.attn_k"},
    {"model.layers.*.self_attn.v_proj", "blk.*.attn_v"},
    {"model.layers.*.self_attn.o_proj", "blk.*.attn_output"},
    {"model.layers.*.mlp.gate_proj", "blk.*.ffn_gate"},
    {"model.layers.*.mlp.up_proj", "blk.*.ffn_up"},
    {"model.layers.*.mlp.down_proj", "blk.*.ffn_down"},
}};

std::string with_layer(std::string_view pattern, int64_t layer) {
  std::string text(pattern);
  const size_t star = text.find('*');
  if (star != std::string::npos) text.replace(star, 1, std::to_string(layer));
  return text;
}

DimSplit head_split(const ModelConfig& config, DimSplit::Kind kind) {
  DimSplit split;
  split.kind = kind;
  split.num_heads = config.num_heads;
  split.num_kv_heads = config.num_kv_heads;
  split.size = config.head_dim *
               (kind == DimSplit::Kind::kQueryHeads ? config.num_heads : config.num_kv_heads);
  return split;
}

DimSplit even_split(int64_t size, int64_t unit, int64_t fine_unit) {
  DimSplit split;
  split.size = size;
  split.unit = unit;
  split.fine_unit = fine_unit;
  return split;
}

class RulesBuilder {
 public:
  RulesBuilder(const ModelConfig& config, const io::TensorFile& file)
      : config_(config), file_(file) {}

  WeightRules build() {
    add_splits();
    by_rows("model.embed_tokens", 0, "vocab", config_.width);
    for (int64_t layer = 0; layer < config_.num_layers; ++layer) add_layer(layer);
    norm("model.norm", 0);
    if (!config_.is_tied) by_rows("lm_head", 0, "vocab", config_.width);
    return std::move(rules_);
  }

 private:
  void add_splits() {
    rules_.splits["heads"] = head_split(config_, DimSplit::Kind::kQueryHeads);
    rules_.splits["kv"] = head_split(config_, DimSplit::Kind::kKvHeads);
    rules_.splits["vocab"] = even_split(config_.vocab_size, 1, 0);
    const int64_t unit = ffn_unit();
    // Where whole quant groups don't suffice they are cut at runs of 8, which is lossless too.
    rules_.splits["ffn"] = even_split(config_.ffn_width, unit, unit > 8 && unit % 8 == 0 ? 8 : 0);
  }

  // The ffn is cut where no quant group of down_proj's columns is.
  int64_t ffn_unit() const {
    const std::string base = file_name("model.layers.*.mlp.down_proj", 0);
    if (file_.find(base + ".weight") == nullptr && file_.find(base + ".qweight") == nullptr)
      return 1;
    return io::matrix_format(file_, {base, config_.width, config_.ffn_width}).in_unit;
  }

  std::string file_name(std::string_view model_name, int64_t layer) const {
    for (const NameRow& row : kNames) {
      if (row.model == model_name) {
        return with_layer(file_.is_gguf() ? row.gguf : row.model, layer);
      }
    }
    core::fail<core::InternalError>("models.llama: no name for ", model_name);
  }

  void add_layer(int64_t layer) {
    const int64_t D = config_.width;
    norm("model.layers.*.input_layernorm", layer);
    by_rows("model.layers.*.self_attn.q_proj", layer, "heads", D, rope_order(config_.num_heads));
    by_rows("model.layers.*.self_attn.k_proj", layer, "kv", D, rope_order(config_.num_kv_heads));
    by_rows("model.layers.*.self_attn.v_proj", layer, "kv", D);
    by_columns("model.layers.*.self_attn.o_proj", layer, "heads", D);
    norm("model.layers.*.post_attention_layernorm", layer);
    by_rows("model.layers.*.mlp.gate_proj", layer, "ffn", D);
    by_rows("model.layers.*.mlp.up_proj", layer, "ffn", D);
    by_columns("model.layers.*.mlp.down_proj", layer, "ffn", D);
  }

  // GGUF keeps the q and k rows of a Llama head as pairs (0, H/2), (1, H/2 + 1), … for its own
  // rope.
  std::vector<io::ShardStep> rope_order(int64_t heads) const {
    if (!file_.is_gguf()) return {};
    io::ShardStep step;
    step.function = "unpermute_rope";
    step.arguments.emplace_back(heads);
    return {step};
  }

  void norm(std::string_view name, int64_t layer) { add(name, layer, ".weight", 0, config_.width); }

  void by_rows(std::string_view name, int64_t layer, const std::string& split, int64_t in,
               const std::vector<io::ShardStep>& reorder = {}) {
    const int64_t out = rules_.splits.at(split).size;
    const auto cut = [&](WeightRule& rule) {
      rule.cut = Cut::kRows;
      rule.split = split;
      rule.reorder = reorder;
    };
    if (has_bias(name, layer)) cut(add(name, layer, ".bias", 0, out));
    cut(add(name, layer, ".weight", out, in));
  }

  void by_columns(std::string_view name, int64_t layer, const std::string& split, int64_t out) {
    if (has_bias(name, layer)) add(name, layer, ".bias", 0, out);
    WeightRule& rule = add(name, layer, ".weight", out, rules_.splits.at(split).size);
    rule.cut = Cut::kColumns;
    rule.split = split;
  }

  bool has_bias(std::string_view name, int64_t layer) const {
    return file_.find(file_name(name, layer) + ".bias") != nullptr;
  }

  WeightRule& add(std::string_view name, int64_t layer, const char* suffix, int64_t out,
                  int64_t in) {
    WeightRule& rule = rules_.weights.emplace_back();
    rule.name = with_layer(name, layer) + suffix;
    rule.file_name = file_name(name, layer) + suffix;
    rule.out = out;
    rule.in = in;
    return rule;
  }

  const ModelConfig& config_;
  const io::TensorFile& file_;
  WeightRules rules_;
};

}  // namespace

WeightRules llama_rules(const ModelConfig& config, const io::TensorFile& file) {
  return RulesBuilder(config, file).build();
}

}  // namespace weft::models
