#include "weft/models/convert/keys/gemma4_keys.h"

#include <algorithm>
#include <utility>

#include "weft/core/error.h"
#include "weft/models/config/config_rope.h"
#include "weft/models/config/families.h"
#include "weft/models/config/mixers/gemma4_gguf.h"
#include "weft/models/config/mixers/latent_keys.h"

namespace weft::models {
namespace {

// One number where all layers have it, else a list.
template <class OfLayer>
void add_layer_numbers(const ModelConfig& config, const char* name, const OfLayer& of_layer,
                       GgufKeyList& keys) {
  std::vector<int64_t> list;
  for (int64_t layer = 0; layer < config.num_layers; ++layer) list.push_back(of_layer(layer));
  const bool is_one = std::ranges::count(list, list.front()) == config.num_layers;
  if (is_one) return keys.number(keys.own(name), list.front());
  keys.add({keys.own(name), io::GgufType::kI32, std::move(list)});
}

void add_window_pattern(const ModelConfig& config, GgufKeyList& keys) {
  std::vector<bool> has_window;
  int64_t size = 0;
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    has_window.push_back(config.window(layer) > 0);
    size = std::max(size, config.window(layer));
  }
  keys.number(keys.own(kWindowSizeGgufKey), size);
  keys.add({keys.own(kWindowPatternGgufKey), io::GgufType::kBool, std::move(has_window)});
}

void add_heads(const ModelConfig& config, GgufKeyList& keys) {
  const FullLayersConfig& full = config.full_layers;
  for (const char* name : {kHeadDimGgufKey, kValueDimGgufKey, kRopeDimsGgufKey}) {
    keys.number(keys.own(name), full.head_dim);
  }
  for (const char* name : {kWindowHeadDimGgufKey, kWindowValueDimGgufKey, kWindowRopeDimsGgufKey}) {
    keys.number(keys.own(name), config.head_dim);
  }
  add_layer_numbers(
      config, "attention.head_count_kv",
      [&](int64_t layer) {
        return config.window(layer) == 0 ? full.num_kv_heads : config.num_kv_heads;
      },
      keys);
}

}  // namespace

void add_gemma4_keys(const ModelConfig& config, GgufKeyList& keys) {
  add_heads(config, keys);
  add_window_pattern(config, keys);
  keys.number(keys.own(kReusingGgufKey), config.reusing.count);
  const int64_t wide = config.reusing.ffn_width;
  add_layer_numbers(
      config, "feed_forward_length",
      [&](int64_t layer) {
        return wide > 0 && layer >= config.first_reusing() ? wide : config.ffn_width;
      },
      keys);
  keys.number(keys.own(kInputWidthGgufKey), config.layer_inputs.width);
  keys.real(keys.own("rope.freq_base"), config.rope_base);
  keys.real(keys.own(kWindowRopeGgufKey), config.window_rope_base);
}

std::vector<float> gemma4_divisors(const ModelConfig& config) {
  if (config.rope_scaling.type != nn::RopeType::kProportional) return {};
  const auto pairs = static_cast<size_t>(config.full_layers.head_dim / 2);
  const auto turned =
      static_cast<size_t>(static_cast<double>(pairs) * config.rope_scaling.turned_part);
  std::vector<float> divisors(pairs, kUnturnedDivisor);
  std::fill_n(divisors.begin(), std::min(turned, pairs), 1.0F);
  return divisors;
}

void check_gemma4_in_gguf(const ModelConfig& config, const std::string& where) {
  core::check<core::ConfigError>(
      config.rope_scaling.type != nn::RopeType::kProportional || config.rope_scaling.factor == 1,
      where, ": GGUF has no factor of a proportional rope, which is ", config.rope_scaling.factor,
      "; keep the folder");
}

}  // namespace weft::models
