// ModelConfig from a GGUF's keys, as its specification and llama.cpp's readers have them.
#include <algorithm>
#include <array>
#include <string_view>

#include "weft/core/error.h"
#include "weft/models/config/config_rope.h"
#include "weft/models/config/sources.h"
#include "weft/models/config/sources_gguf.h"

namespace weft::models {
namespace {

using core::check;
using core::ConfigError;
using core::FormatError;

constexpr char kTokens[] = "tokenizer.ggml.tokens";
// What check_config allows; nothing is made for more.

// What distinguishes an architecture in GGUF.
struct Architecture {
  std::string_view name;
  std::string_view family;
  bool has_head_norms;
  // Unless the file says otherwise.
  bool normalizes_weights;
  bool has_shared_expert;
};

// Mistral and Mixtral are of the architecture llama here.
constexpr std::array<Architecture, 5> kArchitectures = {{
    {"llama", "llama", false, true, false},
    {"qwen2", "qwen2", false, true, false},
    {"qwen3", "qwen3", true, true, false},
    {"qwen2moe", "qwen2_moe", false, false, true},
    {"qwen3moe", "qwen3_moe", true, true, false},
}};

const Architecture& find_architecture(const std::string& name, const std::string& where) {
  std::vector<std::string_view> known;
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.name == name) return architecture;
    known.push_back(architecture.name);
  }
  core::fail<ConfigError>(where, ": architecture ", core::quote(name),
                          " is not supported, expected one of ", core::list_text(known));
}

class Reader {
 public:
  explicit Reader(const io::TensorFile& file)
      : file_(file),
        keys_(file),
        name_(keys_.text("general.architecture")),
        architecture_(find_architecture(name_, file.path())) {}

  ModelConfig read() {
    config_.family = architecture_.family;
    if (architecture_.has_head_norms) config_.head_norms = HeadNorms::kEachHead;
    read_sizes();
    read_rope(keys_, name_, config_);
    read_window();
    read_experts();
    config_.is_tied = file_.find("output.weight") == nullptr;
    config_.has_qkv_bias = file_.find("blk.0.attn_q.bias") != nullptr;
    config_.has_output_bias = file_.find("blk.0.attn_output.bias") != nullptr;
    config_.has_mlp_bias = file_.find("blk.0.ffn_up.bias") != nullptr;
    return std::move(config_);
  }

 private:
  std::string key(const char* rest) const { return name_ + "." + rest; }

  void read_sizes() {
    config_.width = keys_.integer(key("embedding_length"));
    config_.num_layers = keys_.integer(key("block_count"));
    config_.num_heads = keys_.integer(key("attention.head_count"));
    config_.num_kv_heads = keys_.integer_or(key("attention.head_count_kv"), config_.num_heads);
    config_.ffn_width = keys_.integer(key("feed_forward_length"));
    config_.norm_eps = keys_.real(key("attention.layer_norm_rms_epsilon"));
    config_.vocab_size = keys_.has(key("vocab_size"))
                             ? keys_.integer(key("vocab_size"))
                             : static_cast<int64_t>(keys_.texts(kTokens).size());
    check<FormatError>(config_.num_heads >= 1, file_.path(), ": config: number of heads is ",
                       config_.num_heads, ", expected at least 1");
    config_.head_dim =
        keys_.integer_or(key("attention.key_length"), config_.width / config_.num_heads);
    const int64_t value_dim = keys_.integer_or(key("attention.value_length"), config_.head_dim);
    check<ConfigError>(value_dim == config_.head_dim, file_.path(), ": config: values of ",
                       value_dim, " dims with keys of ", config_.head_dim,
                       " are not supported, expected the same");
  }

  void read_window() {
    check<ConfigError>(!keys_.has(key("attention.sliding_window_pattern")), file_.path(), ": key '",
                       key("attention.sliding_window_pattern"), "' is not supported");
    if (!keys_.has(key("attention.sliding_window"))) return;
    const int64_t window = keys_.integer(key("attention.sliding_window"));
    check<FormatError>(window >= 1, file_.path(), ": config: sliding window is ", window,
                       ", expected at least 1");
    const int64_t layers = std::clamp<int64_t>(config_.num_layers, 0, kMaxLayers);
    config_.windows.assign(static_cast<size_t>(layers), window);
  }

  void read_experts() {
    ExpertsConfig& experts = config_.experts;
    experts.num_experts = keys_.integer_or(key("expert_count"), 0);
    const bool is_plain = experts.num_experts == 0;
    check<FormatError>(!is_plain || !name_.ends_with("moe"), file_.path(), ": key '",
                       key("expert_count"), "' is 0 or missing, expected at least 1");
    if (is_plain) return;
    if (config_.family == "llama") config_.family = "mixtral";
    experts.experts_per_token = keys_.integer(key("expert_used_count"));
    // Files of the first converters don't say it.
    const int64_t fallback =
        name_ == "llama" ? config_.ffn_width
                         : config_.ffn_width / std::max<int64_t>(1, experts.experts_per_token);
    experts.ffn_width = keys_.integer_or(key("expert_feed_forward_length"), fallback);
    experts.normalizes_weights =
        keys_.flag_or(key("expert_weights_norm"), architecture_.normalizes_weights);
    if (architecture_.has_shared_expert) {
      experts.shared_ffn_width =
          keys_.integer_or(key("expert_shared_feed_forward_length"), config_.ffn_width);
    }
  }

  const io::TensorFile& file_;
  GgufKeys keys_;
  std::string name_;
  const Architecture& architecture_;
  ModelConfig config_;
};

}  // namespace

ModelConfig config_from_gguf(const io::TensorFile& file) { return Reader(file).read(); }

}  // namespace weft::models
