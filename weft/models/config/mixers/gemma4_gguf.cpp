#include "weft/models/config/mixers/gemma4_gguf.h"

#include <algorithm>
#include <vector>

#include "weft/core/error.h"
#include "weft/models/config/config_rope.h"
#include "weft/models/config/families.h"
#include "weft/models/config/mixers/latent_keys.h"

namespace weft::models {
namespace {

using core::check;
using core::ConfigError;
using core::FormatError;

class Gemma4Reader {
 public:
  Gemma4Reader(const io::TensorFile& file, const std::string& architecture, ModelConfig& config)
      : file_(file), keys_(file), architecture_(architecture), config_(config) {}

  void read() {
    read_windows();
    config_.reusing.count = keys_.integer_or(key(kReusingGgufKey), 0);
    check<FormatError>(config_.reusing.count >= 0 && config_.reusing.count <= config_.num_layers,
                       file_.path(), ": key '", key(kReusingGgufKey), "' is ",
                       config_.reusing.count, ", expected 0 to ", config_.num_layers);
    read_heads();
    read_rope();
    read_ffn();
    read_inputs();
    read_experts();
  }

 private:
  std::string key(const char* rest) const { return architecture_ + "." + rest; }

  // One number for each layer.
  std::vector<int64_t> of_layers(const char* rest) const {
    const auto layers = static_cast<size_t>(config_.num_layers);
    if (!keys_.is_list(key(rest))) return std::vector<int64_t>(layers, keys_.integer(key(rest)));
    const auto list = keys_.integers(key(rest)).value();
    check_length(list.size(), rest);
    return list;
  }

  void check_length(size_t length, const char* rest) const {
    check<FormatError>(static_cast<int64_t>(length) == config_.num_layers, file_.path(), ": key '",
                       key(rest), "': a list of ", length, ", expected one for each of ",
                       config_.num_layers, " layers");
  }

  void read_windows() {
    const std::vector<bool> pattern = keys_.flags(key(kWindowPatternGgufKey));
    check_length(pattern.size(), kWindowPatternGgufKey);
    if (std::ranges::find(pattern, true) == pattern.end()) return;
    const int64_t size = keys_.integer(key(kWindowSizeGgufKey));
    check<FormatError>(size >= 1, file_.path(), ": config: sliding window is ", size,
                       ", expected at least 1");
    for (const bool has_window : pattern) config_.windows.push_back(has_window ? size : 0);
  }

  // The number of all layers of a kind; `fallback` if there is none.
  template <class IsOfKind>
  int64_t common(const std::vector<int64_t>& list, const char* rest, int64_t fallback,
                 const IsOfKind& is_of_kind) const {
    int64_t found = -1;
    for (int64_t layer = 0; layer < config_.num_layers; ++layer) {
      if (!is_of_kind(layer)) continue;
      const int64_t own = list[static_cast<size_t>(layer)];
      check<ConfigError>(found == -1 || own == found, file_.path(), ": key '", key(rest),
                         "': ", own, " of layer ", layer, ", which is not supported, expected ",
                         found, " as layers like it have");
      found = own;
    }
    return found == -1 ? fallback : found;
  }

  void read_heads() {
    FullLayersConfig& full = config_.full_layers;
    full.head_dim = keys_.integer(key(kHeadDimGgufKey));
    config_.head_dim = keys_.integer_or(key(kWindowHeadDimGgufKey), full.head_dim);
    check_dims(kValueDimGgufKey, full.head_dim, " as keys have");
    check_dims(kWindowValueDimGgufKey, config_.head_dim, " as keys have");
    constexpr const char* kKvHeads = "attention.head_count_kv";
    const std::vector<int64_t> kv_heads = of_layers(kKvHeads);
    const auto is_full = [&](int64_t layer) { return config_.window(layer) == 0; };
    full.num_kv_heads = common(kv_heads, kKvHeads, config_.num_heads, is_full);
    config_.num_kv_heads = common(kv_heads, kKvHeads, full.num_kv_heads,
                                  [&](int64_t layer) { return !is_full(layer); });
    for (int64_t layer = 0; layer < config_.first_reusing(); ++layer) {
      if (!is_full(layer)) continue;
      full.keys_are_values = file_.find(core::join("blk.", layer, ".attn_v.weight")) == nullptr;
      break;
    }
  }

  void check_dims(const char* rest, int64_t expected, const char* why) const {
    const int64_t dims = keys_.integer_or(key(rest), expected);
    check<ConfigError>(dims == expected, file_.path(), ": key '", key(rest), "' is ", dims,
                       ", which is not supported, expected ", expected, why);
  }

  void read_rope() {
    config_.max_positions = keys_.integer(key("context_length"));
    config_.rope_base = keys_.real_or(key("rope.freq_base"), config_.rope_base);
    config_.window_rope_base = keys_.real_or(key(kWindowRopeGgufKey), config_.window_rope_base);
    check_dims(kRopeDimsGgufKey, config_.full_layers.head_dim, "");
    check_dims(kWindowRopeDimsGgufKey, config_.head_dim, "");
    check<ConfigError>(!keys_.has(key(kRopeTypeGgufKey)), file_.path(), ": key '",
                       key(kRopeTypeGgufKey), "' is not supported in this family");
    const std::vector<float> divisors = read_divisors();
    const auto turned = std::ranges::find_if(divisors, [](float x) { return x != 1; });
    const bool is_known =
        std::all_of(turned, divisors.end(), [](float x) { return x >= kUnturnedDivisor; });
    check<ConfigError>(is_known, file_.path(), ": tensor '", kRopeDivisors,
                       "': these divisors are not supported, expected 1 for the first pairs and ",
                       kUnturnedDivisor, " for the others");
    config_.rope_scaling = {};
    if (turned == divisors.end()) return;
    config_.rope_scaling.type = nn::RopeType::kProportional;
    config_.rope_scaling.turned_part =
        static_cast<double>(turned - divisors.begin()) / static_cast<double>(divisors.size());
  }

  std::vector<float> read_divisors() const {
    if (file_.find(kRopeDivisors) == nullptr) return {};
    return read_floats(file_, kRopeDivisors, config_.full_layers.head_dim / 2);
  }

  void read_ffn() {
    constexpr const char* kWidths = "feed_forward_length";
    const std::vector<int64_t> widths = of_layers(kWidths);
    const auto reuses = [&](int64_t layer) { return layer >= config_.first_reusing(); };
    const int64_t reusing = common(widths, kWidths, 0, reuses);
    config_.ffn_width =
        common(widths, kWidths, reusing, [&](int64_t layer) { return !reuses(layer); });
    config_.reusing.ffn_width = reusing == config_.ffn_width ? 0 : reusing;
  }

  void read_inputs() {
    config_.layer_inputs.width = keys_.integer_or(key(kInputWidthGgufKey), 0);
    if (config_.layer_inputs.width == 0) return;
    const io::TensorMeta& table = file_.require("per_layer_token_embd.weight");
    check<FormatError>(table.shape.size() == 2, file_.path(), ": tensor '", table.name, "': shape ",
                       core::list_text(table.shape), ", expected a matrix");
    config_.layer_inputs.vocab_size = table.shape.front();
  }

  void read_experts() {
    ExpertsConfig& experts = config_.experts;
    experts.num_experts = keys_.integer_or(key(kExpertCount.gguf), 0);
    if (experts.num_experts == 0) return;
    experts.experts_per_token = keys_.integer(key(kExpertsPerToken.gguf));
    experts.ffn_width = keys_.integer(key(kExpertWidth.gguf));
    experts.is_beside_ffn = true;
  }

  const io::TensorFile& file_;
  GgufKeys keys_;
  const std::string& architecture_;
  ModelConfig& config_;
};

}  // namespace

void read_gemma4(const io::TensorFile& file, const std::string& architecture, ModelConfig& config) {
  Gemma4Reader(file, architecture, config).read();
}

}  // namespace weft::models
