#include "weft/models/quantize/mix.h"

#include <algorithm>
#include <cctype>

#include "weft/core/error.h"

namespace weft::models {
namespace {

using core::Dtype;

constexpr GgufMix kMixes[] = {
    {"Q4_0", 2, Dtype::kQ4_0},     {"Q4_1", 3, Dtype::kQ4_1},   {"Q8_0", 7, Dtype::kQ8_0},
    {"Q5_0", 8, Dtype::kQ5_0},     {"Q5_1", 9, Dtype::kQ5_1},   {"Q2_K", 10, Dtype::kQ2K},
    {"Q3_K_S", 11, Dtype::kQ3K},   {"Q3_K_M", 12, Dtype::kQ3K}, {"Q3_K_L", 13, Dtype::kQ3K},
    {"Q4_K_S", 14, Dtype::kQ4K},   {"Q4_K_M", 15, Dtype::kQ4K}, {"Q5_K_S", 16, Dtype::kQ5K},
    {"Q5_K_M", 17, Dtype::kQ5K},   {"Q6_K", 18, Dtype::kQ6K},   {"IQ4_NL", 25, Dtype::kIQ4NL},
    {"IQ4_XS", 30, Dtype::kIQ4XS},
};

constexpr Dtype kTypes[] = {
    Dtype::kQ4_0,  Dtype::kQ4_1,  Dtype::kQ5_0, Dtype::kQ5_1, Dtype::kQ8_0,
    Dtype::kQ2K,   Dtype::kQ3K,   Dtype::kQ4K,  Dtype::kQ5K,  Dtype::kQ6K,
    Dtype::kIQ4NL, Dtype::kIQ4XS, Dtype::kF16,  Dtype::kBF16, Dtype::kF32,
};

// Experts of Mixtral: its attention is small beside them.
constexpr int64_t kMixtralExperts = 8;
// Query heads for each kv head from which attn_v is small beside attn_q.
constexpr int64_t kManyQueryHeads = 4;
// Llama 2 and 3 of 70 billion numbers, and Qwen2 of 72.
constexpr int64_t kManyLayers = 80;

std::string upper(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// What a mix gives one tensor, by the mix's name.
class MixRule {
 public:
  MixRule(const GgufMix& mix, const ModelConfig& config, const MixPlace& place)
      : name_(mix.name), base_(mix.base), config_(config), place_(place) {}

  Dtype type() const {
    const std::string_view tensor = place_.tensor;
    const bool is_embedding = has(tensor, "token_embd.weight");
    if (tensor == "output.weight" || (is_embedding && config_.is_tied)) return of_head();
    if (is_embedding) return base_;
    if (makes_values(tensor)) return for_many_layers(of_values());
    if (has(tensor, "attn_k.weight")) return is_mixtral() ? Dtype::kQ8_0 : base_;
    if (has(tensor, "attn_output.weight")) return of_attention_output();
    if (has(tensor, "ffn_down")) return of_down();
    return base_;
  }

 private:
  bool is(std::string_view name) const { return name_ == name; }
  bool is_iq4() const { return is("IQ4_NL") || is("IQ4_XS"); }
  bool is_mixtral() const { return config_.experts.num_experts == kMixtralExperts; }
  bool has_many_query_heads() const {
    return config_.num_heads >= kManyQueryHeads * std::max<int64_t>(config_.num_kv_heads, 1);
  }
  bool is_below(int64_t parts) const { return place_.layer < config_.num_layers / parts; }
  // The first and the last eighth of n, and every third between.
  static bool is_sensitive(int64_t index, int64_t n) {
    const int64_t first = n / 8;
    return index < first || index >= 7 * n / 8 || (index - first) % 3 == 2;
  }

  Dtype of_head() const {
    if (config_.width % core::info(base_).block_elements != 0) return Dtype::kQ8_0;
    return base_ == Dtype::kQ8_0 ? base_ : Dtype::kQ6K;
  }

  // A model of so many layers is so large that the values' bits count little.
  Dtype for_many_layers(Dtype type) const {
    const bool is_small = type == Dtype::kQ3K || type == Dtype::kQ4K;
    return config_.num_layers == kManyLayers && is_small ? Dtype::kQ5K : type;
  }

  Dtype of_values() const {
    if (is_mixtral()) return Dtype::kQ8_0;
    if (is("Q2_K")) return has_many_query_heads() ? Dtype::kQ4K : Dtype::kQ3K;
    if (is("Q3_K_M")) return place_.values_index < 2 ? Dtype::kQ5K : Dtype::kQ4K;
    if (is("Q3_K_L")) return Dtype::kQ5K;
    if (is_iq4() && has_many_query_heads()) return Dtype::kQ5K;
    const bool is_sensitive_one = is_sensitive(place_.values_index, place_.num_values);
    if ((is("Q4_K_M") || is("Q5_K_M")) && is_sensitive_one) return Dtype::kQ6K;
    if (is("Q4_K_S") && place_.values_index < 4) return Dtype::kQ5K;
    return base_;
  }

  Dtype of_attention_output() const {
    if (is_mixtral()) {
      const bool is_small =
          base_ == Dtype::kQ2K || base_ == Dtype::kQ4K || is_iq4() || is("Q3_K_S") || is("Q3_K_M");
      return is_small ? Dtype::kQ5K : base_;
    }
    if (is("Q2_K")) return Dtype::kQ3K;
    if (is("Q3_K_M")) return Dtype::kQ4K;
    return is("Q3_K_L") ? Dtype::kQ5K : base_;
  }

  Dtype of_down() const {
    if (is("Q2_K")) return Dtype::kQ3K;
    if (is("Q3_K_M")) return is_below(16) ? Dtype::kQ5K : Dtype::kQ4K;
    if (is("Q3_K_L")) return Dtype::kQ5K;
    const bool is_sensitive_layer = is_sensitive(place_.layer, config_.num_layers);
    if ((is("Q4_K_M") || is("Q5_K_M")) && is_sensitive_layer) return Dtype::kQ6K;
    if (is("Q4_K_S") && is_below(8)) return Dtype::kQ5K;
    if (is_iq4() && is_below(8) && !place_.has_importance) return Dtype::kQ5K;
    if (is("Q4_0") && is_below(8) && place_.has_importance) return Dtype::kQ4_1;
    if (is("Q5_0") && is_below(8) && place_.has_importance) return Dtype::kQ5_1;
    return base_;
  }

  std::string_view name_;
  Dtype base_;
  const ModelConfig& config_;
  const MixPlace& place_;
};

// Of types in blocks of 256: the one in blocks of 32.
Dtype smaller_block(Dtype wanted) {
  switch (wanted) {
    case Dtype::kQ2K:
    case Dtype::kQ3K:
      return Dtype::kQ4_0;
    case Dtype::kQ4K:
      return Dtype::kQ5_0;
    case Dtype::kQ5K:
      return Dtype::kQ5_1;
    case Dtype::kQ6K:
      return Dtype::kQ8_0;
    case Dtype::kIQ4XS:
      return Dtype::kIQ4NL;
    default:
      return wanted;
  }
}

}  // namespace

std::string mix_names() {
  std::string names;
  for (const GgufMix& mix : kMixes) names += (names.empty() ? "" : ", ") + std::string(mix.name);
  return names;
}

const GgufMix& find_mix(const std::string& name, const std::string& where) {
  const std::string wanted = upper(name);
  const auto* const found = std::ranges::find(kMixes, wanted, &GgufMix::name);
  core::check<core::ConfigError>(found != std::end(kMixes), where, ": ", core::quote(name),
                                 ", expected one of ", mix_names());
  return *found;
}

Dtype block_type_named(const std::string& name, const std::string& where) {
  const std::string wanted = upper(name);
  const auto* const found = std::ranges::find_if(
      kTypes, [&](const Dtype type) { return core::info(type).name == wanted; });
  std::string names;
  for (const Dtype type : kTypes) {
    names += (names.empty() ? "" : ", ") + std::string(core::info(type).name);
  }
  core::check<core::ConfigError>(found != std::end(kTypes), where, ": ", core::quote(name),
                                 ", expected one of ", names);
  return *found;
}

bool makes_values(std::string_view tensor) {
  return has(tensor, "attn_v.weight") || has(tensor, "attn_qkv.weight") ||
         has(tensor, "attn_kv_b.weight");
}

Dtype mixed_type(const GgufMix& mix, const ModelConfig& config, const MixPlace& place) {
  return MixRule(mix, config, place).type();
}

Dtype fitting_type(Dtype wanted, int64_t columns) {
  if (columns % core::info(wanted).block_elements == 0) return wanted;
  const Dtype smaller = smaller_block(wanted);
  return columns % core::info(smaller).block_elements == 0 ? smaller : Dtype::kF16;
}

}  // namespace weft::models
