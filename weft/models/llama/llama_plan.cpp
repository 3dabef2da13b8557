#include "weft/models/llama/llama_plan.h"

#include <array>
#include <string_view>

#include "weft/core/error.h"

namespace weft::models {
namespace {

using shard::Range;

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

// Rows of whole heads in the model's order. GGUF keeps the q and k rows of a Llama head as pairs
// (0, H/2), (1, H/2 + 1), …, for its own rope; taking them one by one puts them back.
std::vector<Range> head_rows(const Range& heads, int64_t head_dim, bool is_interleaved) {
  if (!is_interleaved) return {{heads.start * head_dim, heads.length * head_dim}};
  std::vector<Range> rows;
  for (int64_t head = heads.start; head < heads.end(); ++head) {
    for (int64_t i = 0; i < head_dim; ++i) {
      const int64_t half = i / (head_dim / 2), pair = i % (head_dim / 2);
      rows.push_back({head * head_dim + 2 * pair + half, 1});
    }
  }
  return rows;
}

// A vector has one row; its cut is along the columns.
Range joined(const std::vector<Range>& rows) {
  return {rows.front().start, shard::total_length(rows)};
}

class Planner {
 public:
  Planner(const ModelConfig& config, const io::TensorFile& file, int64_t n, int64_t rank)
      : config_(config), file_(file) {
    plan_.heads = shard::shard_heads(config.num_heads, config.num_kv_heads, n, rank);
    auto heads = shard::head_layouts(config.num_heads, config.num_kv_heads, config.head_dim, n);
    plan_.layouts["heads"] = std::move(heads.query);
    plan_.layouts["kv"] = std::move(heads.kv);
    plan_.ffn = even_split("ffn", config.ffn_width, ffn_unit(n), n, rank);
    plan_.vocab = even_split("vocab", config.vocab_size, 1, n, rank);
  }

  LoadPlan make() {
    by_rows("model.embed_tokens", 0, "vocab", {plan_.vocab}, config_.vocab_size, config_.width);
    for (int64_t layer = 0; layer < config_.num_layers; ++layer) add_layer(layer);
    whole("model.norm", 0);
    if (!config_.is_tied) {
      by_rows("lm_head", 0, "vocab", {plan_.vocab}, config_.vocab_size, config_.width);
    }
    return std::move(plan_);
  }

 private:
  Range even_split(const std::string& name, int64_t size, int64_t unit, int64_t n, int64_t rank) {
    const std::string where = core::join(file_.path(), ": ", name);
    plan_.layouts[name] = shard::make_layout({0, {}, unit}, size, n, where);
    return plan_.layouts[name].of(rank).front();
  }

  // The ffn is cut where no quant group of down_proj's columns is, unless that would leave a rank
  // with nothing: then groups are cut at runs of 8, which slices losslessly too.
  int64_t ffn_unit(int64_t n) const {
    const io::MatrixRef down = {file_name("model.layers.*.mlp.down_proj", 0) + ".weight",
                                config_.width, config_.ffn_width};
    const int64_t unit = io::matrix_format(file_, down).column_unit;
    return config_.ffn_width / unit >= n || unit % 8 != 0 ? unit : 8;
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
    const int64_t H = config_.head_dim, D = config_.width, F = config_.ffn_width;
    const int64_t N = config_.num_heads, K = config_.num_kv_heads;
    const bool is_interleaved = file_.is_gguf();
    const std::vector<Range> q_rows = head_rows(plan_.heads.heads, H, is_interleaved);
    const std::vector<Range> k_rows = head_rows(plan_.heads.kv_heads, H, is_interleaved);
    const std::vector<Range> v_rows = head_rows(plan_.heads.kv_heads, H, false);
    const Range o_columns = {plan_.heads.heads.start * H, plan_.heads.heads.length * H};
    whole("model.layers.*.input_layernorm", layer);
    by_rows("model.layers.*.self_attn.q_proj", layer, "heads", q_rows, N * H, D);
    by_rows("model.layers.*.self_attn.k_proj", layer, "kv", k_rows, K * H, D);
    by_rows("model.layers.*.self_attn.v_proj", layer, "kv", v_rows, K * H, D);
    by_columns("model.layers.*.self_attn.o_proj", layer, "heads", o_columns, D, N * H);
    whole("model.layers.*.post_attention_layernorm", layer);
    by_rows("model.layers.*.mlp.gate_proj", layer, "ffn", {plan_.ffn}, F, D);
    by_rows("model.layers.*.mlp.up_proj", layer, "ffn", {plan_.ffn}, F, D);
    by_columns("model.layers.*.mlp.down_proj", layer, "ffn", plan_.ffn, D, F);
  }

  void whole(std::string_view name, int64_t layer) {
    add_vector(with_layer(name, layer) + ".weight", file_name(name, layer) + ".weight", Cut::kWhole,
               "", config_.width, {0, config_.width});
  }

  void by_rows(std::string_view name, int64_t layer, const std::string& split,
               std::vector<Range> rows, int64_t out, int64_t in) {
    const std::string bias = file_name(name, layer) + ".bias";
    if (file_.find(bias) != nullptr) {
      check_bias_order(bias, rows);
      add_vector(with_layer(name, layer) + ".bias", bias, Cut::kRows, split, out, joined(rows));
    }
    add_matrix(name, layer, Cut::kRows, split, {out, in}, {std::move(rows), {0, in}});
  }

  void by_columns(std::string_view name, int64_t layer, const std::string& split,
                  const Range& columns, int64_t out, int64_t in) {
    const std::string bias = file_name(name, layer) + ".bias";
    if (file_.find(bias) != nullptr) {
      add_vector(with_layer(name, layer) + ".bias", bias, Cut::kWhole, "", out, {0, out});
    }
    add_matrix(name, layer, Cut::kColumns, split, {out, in}, {{{0, out}}, columns});
  }

  // A bias is read as one run, so its rows may not be reordered.
  void check_bias_order(const std::string& bias, const std::vector<Range>& rows) const {
    core::check<core::ConfigError>(rows.size() == 1, file_.path(), ": tensor '", bias,
                                   "': a bias whose rows are permuted is not supported");
  }

  struct Whole {
    int64_t out, in;
  };

  void add_matrix(std::string_view name, int64_t layer, Cut cut, const std::string& split,
                  const Whole& whole, io::MatrixSlice slice) {
    WeightPlan& weight = plan_.weights.emplace_back();
    weight.name = with_layer(name, layer) + ".weight";
    weight.matrix.name = file_name(name, layer) + ".weight";
    weight.matrix.out = whole.out;
    weight.matrix.in = whole.in;
    weight.cut = cut;
    weight.split = split;
    weight.slice = std::move(slice);
  }

  void add_vector(const std::string& name, const std::string& file_tensor, Cut cut,
                  const std::string& split, int64_t size, const Range& range) {
    WeightPlan& weight = plan_.weights.emplace_back();
    weight.name = name;
    weight.matrix.name = file_tensor;
    weight.matrix.in = size;
    weight.cut = cut;
    weight.split = split;
    weight.slice.rows = {{0, 1}};
    weight.slice.columns = range;
  }

  const ModelConfig& config_;
  const io::TensorFile& file_;
  LoadPlan plan_;
};

}  // namespace

LoadPlan plan_llama(const ModelConfig& config, const io::TensorFile& file, int64_t n,
                    int64_t rank) {
  return Planner(config, file, n, rank).make();
}

}  // namespace weft::models
