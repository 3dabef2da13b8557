#include "weft/models/config/config_rope.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "weft/core/error.h"
#include "weft/models/config/families.h"
#include "weft/models/config/mixers/config_gemma4.h"
#include "weft/models/config/mixers/latent_keys.h"

namespace weft::models {
namespace {

using core::check;
using core::ConfigError;
using core::FormatError;
using core::Json;
using nn::RopeScaling;
using nn::RopeType;

constexpr double kMostPositions = 1e15;

// "rope_type", in older files "type"; transformers writes both.
std::string type_name(const JsonKeys& keys) {
  const std::string type = keys.text_or("type", "default");
  const std::string name = keys.text_or("rope_type", type);
  check<FormatError>(!keys.has("type") || name == type, keys.where(), ": rope_type ",
                     core::quote(name), " and type ", core::quote(type), ", expected the same");
  return name;
}

// In Python 0 and null are as good as missing.
double nonzero_or(const JsonKeys& keys, const char* key, double fallback) {
  const double value = keys.real_or(key, fallback);
  return value == 0 ? fallback : value;
}

// What Phi-3's first files call it.
std::string usual_name(const std::string& type) { return type == "su" ? "longrope" : type; }

void read_long_rope(const JsonKeys& keys, int64_t positions, RopeScaling& scaling) {
  scaling.short_factors = keys.reals("short_factor");
  scaling.long_factors = keys.reals("long_factor");
  const double ratio =
      static_cast<double>(positions) / static_cast<double>(scaling.original_positions);
  scaling.factor = keys.real_or("factor", std::max(ratio, 1.0));
  if (keys.has("attention_factor")) scaling.attention_factor = keys.real("attention_factor");
}

// `positions` are those of the model, `original` those that stand beside the scaling; 0: none do.
RopeScaling scaling_from(const JsonKeys& keys, int64_t positions, int64_t original,
                         const FamilyInfo& family) {
  RopeScaling scaling;
  const std::string type = usual_name(type_name(keys));
  if (type == "proportional" && has_gemma4_layers(family)) {
    scaling.type = RopeType::kProportional;
    scaling.factor = keys.real_or("factor", 1);
    scaling.turned_part = keys.real_or("partial_rotary_factor", 1);
    return scaling;
  }
  scaling.type = nn::rope_type_of(type, keys.where());
  if (scaling.type == RopeType::kDefault) return scaling;
  if (scaling.type == RopeType::kLongRope) {
    scaling.original_positions =
        keys.integer_or(kOriginalPositionsKey, original > 0 ? original : positions);
    check<FormatError>(scaling.original_positions >= 1, keys.where(), ": ", kOriginalPositionsKey,
                       " is ", scaling.original_positions, ", expected at least 1");
    read_long_rope(keys, positions, scaling);
    return scaling;
  }
  scaling.factor = keys.real("factor");
  if (scaling.type == RopeType::kDynamic) scaling.original_positions = positions;
  if (scaling.type == RopeType::kLlama3) {
    scaling.low_freq_factor = keys.real("low_freq_factor");
    scaling.high_freq_factor = keys.real("high_freq_factor");
    scaling.original_positions = keys.integer(kOriginalPositionsKey);
  } else if (scaling.type == RopeType::kYarn) {
    scaling.original_positions = keys.integer_or(kOriginalPositionsKey, positions);
    scaling.beta_fast = nonzero_or(keys, "beta_fast", 32);
    scaling.beta_slow = nonzero_or(keys, "beta_slow", 1);
    scaling.mscale = keys.real_or("mscale", 0);
    scaling.mscale_all_dim = keys.real_or("mscale_all_dim", 0);
    scaling.truncate = keys.flag_or("truncate", family.truncates_yarn);
    if (keys.has("attention_factor")) scaling.attention_factor = keys.real("attention_factor");
  }
  return scaling;
}

// What the model reads with its scaling; llama3's files count it in already.
int64_t extended_positions(int64_t positions, const RopeScaling& scaling) {
  const bool is_counted = scaling.type == RopeType::kLlama3 ||
                          scaling.type == RopeType::kProportional ||
                          scaling.type == RopeType::kLongRope;
  if (scaling.type == RopeType::kDefault || is_counted) return positions;
  const int64_t from = scaling.type == RopeType::kYarn ? scaling.original_positions : positions;
  const double most = std::floor(static_cast<double>(from) * scaling.factor);
  return std::max(positions, static_cast<int64_t>(std::min(most, kMostPositions)));
}

// Newer transformers have one for each kind of layer. Null: there is no rope of windows alone.
const Json* find_of_layers(const JsonKeys& keys, const char* kind) {
  const Json* parameters = keys.find("rope_parameters");
  return parameters == nullptr
             ? nullptr
             : JsonKeys(*parameters, keys.where() + ": rope_parameters").find(kind);
}

// Where there are both, transformers 5 reads the old one, and other programs the new one.
const Json* scaling_json(const JsonKeys& keys) {
  const Json* of_layers = find_of_layers(keys, "full_attention");
  const Json* old = keys.find("rope_scaling");
  const Json* parameters = of_layers == nullptr ? keys.find("rope_parameters") : of_layers;
  if (old == nullptr || parameters == nullptr) return old == nullptr ? parameters : old;
  const auto type = [&](const Json* json, const char* name) {
    return type_name(JsonKeys(*json, keys.where() + ": " + name));
  };
  bool is_same = type(old, "rope_scaling") == type(parameters, "rope_parameters");
  for (const auto& [key, value] : old->items()) {
    is_same = is_same && (!parameters->contains(key) || parameters->at(key) == value);
  }
  check<FormatError>(is_same, keys.where(),
                     ": rope_scaling and rope_parameters differ; keep one of them");
  return parameters;
}

void refuse_unless(double value, double neutral, const char* key, const GgufKeys& keys) {
  check<ConfigError>(value == neutral, keys.path(), ": key '", key, "' is ", value,
                     ", which is not supported, expected ", neutral);
}

void read_rope_dims(const GgufKeys& keys, const std::string& key, ModelConfig& config) {
  if (config.latent.is_used()) {
    config.rope_dims = keys.integer(key);
    return;
  }
  const int64_t rotated = keys.integer_or(key, config.head_dim);
  config.rope_dims = 0;
  if (rotated == config.head_dim) return;
  check<FormatError>(family_info(config).has_partial_rope, keys.path(), ": config: rope over ",
                     rotated, " of ", config.head_dim, " head dims is not supported, expected all");
  check<FormatError>(rotated > 0, keys.path(), ": key '", key, "' is ", rotated,
                     ", expected at least 1");
  config.rope_dims = rotated;
}

// Null if no key says it; the first converters called it otherwise. 0 is as good as 1.
std::optional<double> gguf_rope_factor(const GgufKeys& keys, const std::string& rope) {
  for (const char* key : {"scaling.factor", "scale_linear"}) {
    if (!keys.has(rope + key)) continue;
    const double factor = keys.real(rope + key);
    return factor == 0 ? 1 : factor;
  }
  return std::nullopt;
}

// A factor without a type is one of linear scaling, as in llama.cpp.
RopeType gguf_rope_type(const GgufKeys& keys, const std::string& key, double factor) {
  const std::string name = keys.text_or(key, factor == 1 ? "none" : "linear");
  check<ConfigError>(name == "none" || name == "linear" || name == "yarn", keys.path(),
                     ": rope scaling ", core::quote(name),
                     " is not supported, expected one of [none, linear, yarn]");
  if (name == "none") return RopeType::kDefault;
  return name == "linear" ? RopeType::kLinear : RopeType::kYarn;
}

void read_window_rope(const JsonKeys& keys, ModelConfig& config) {
  if (config.window_rope_base == 0) return;
  config.window_rope_base = keys.real_or(kWindowRopeFolderKey, config.window_rope_base);
  const Json* json = find_of_layers(keys, "sliding_attention");
  if (json == nullptr) return;
  const JsonKeys inner(*json, keys.where() + ": rope_parameters: sliding_attention");
  config.window_rope_base = inner.real_or("rope_theta", config.window_rope_base);
  const RopeScaling scaling = scaling_from(inner, config.max_positions, 0, family_info(config));
  check<ConfigError>(scaling.type == RopeType::kDefault, inner.where(),
                     ": a scaled rope of layers with a window is not supported, expected rope_type "
                     "'default'");
}

// One key has what yarn's own sharpening is multiplied by, the other one what stands in its place:
// transformers' attention_factor, as llama.cpp's converter writes it.
void read_sharpening(const GgufKeys& keys, const std::string& rope, double attention,
                     ModelConfig& config) {
  RopeScaling& scaling = config.rope_scaling;
  const std::string whole = rope + "scaling.yarn_attn_factor";
  if (config.latent.is_used() || keys.has(whole)) {
    refuse_unless(attention, 1, "rope.scaling.attn_factor", keys);
  }
  if (config.latent.is_used()) {
    refuse_unless(keys.real_or(whole, 1), 1, "rope.scaling.yarn_attn_factor", keys);
  } else if (keys.has(whole)) {
    scaling.attention_factor = keys.real(whole);
  } else if (attention != 1 && scaling.factor >= 1) {
    scaling.attention_factor = attention * (1 + 0.1 * std::log(scaling.factor));
  }
}

// Its lists are tensors, beside which no key need say the type.
void read_long_rope(const GgufKeys& keys, const std::string& architecture, double attention,
                    ModelConfig& config) {
  RopeScaling& scaling = config.rope_scaling;
  const std::string type = keys.text_or(architecture + "." + kRopeTypeGgufKey, "longrope");
  check<ConfigError>(type == "longrope" || type == "none", keys.path(), ": rope scaling ",
                     core::quote(type), " beside the tensor '", kLongRopeFactors,
                     "' is not supported, expected one of [none, longrope]");
  const std::string original = architecture + "." + kOriginalPositionsGgufKey;
  scaling.original_positions = keys.integer(original);
  check<FormatError>(scaling.original_positions >= 1, keys.path(), ": key '", original, "' is ",
                     scaling.original_positions, ", expected at least 1");
  scaling.factor = std::max(1.0, static_cast<double>(config.max_positions) /
                                     static_cast<double>(scaling.original_positions));
  // Files have it as float32.
  const double usual = nn::long_rope_sharpening(scaling);
  if (static_cast<float>(attention) != static_cast<float>(usual)) {
    scaling.attention_factor = attention;
  }
  nn::check_rope_scaling(scaling, keys.path() + ": config");
}

}  // namespace

double real_of_rope(const JsonKeys& keys, const JsonKeys& rope, const char* key, double fallback) {
  const double own = keys.real_or(key, fallback), of_rope = rope.real_or(key, own);
  check<FormatError>(!keys.has(key) || own == of_rope, keys.where(), ": ", key, " is ", own,
                     ", but ", of_rope, " among rope's parameters; keep one of them");
  return of_rope;
}

void read_rope(const JsonKeys& keys, const RopeDefaults& defaults, ModelConfig& config) {
  const int64_t positions = keys.integer_or("max_position_embeddings", defaults.positions);
  config.max_positions = positions;
  config.rope_base = keys.real_or("rope_theta", defaults.base);
  read_window_rope(keys, config);
  const Json* json = scaling_json(keys);
  Json usual;
  if (json == nullptr && family_info(config).usual_rope != nullptr) {
    usual = core::parse_json(family_info(config).usual_rope, keys.where());
    json = &usual;
  }
  if (json == nullptr) return;
  const JsonKeys inner(*json, keys.where() + ": rope scaling");
  config.rope_base = real_of_rope(keys, inner, "rope_theta", defaults.base);
  config.rope_scaling = scaling_from(inner, positions, keys.integer_or(kOriginalPositionsKey, 0),
                                     family_info(config));
  if (family_info(config).has_query_growth) {
    config.query_growth = inner.real_or(kQueryGrowthFolderKey, 0);
  }
  nn::check_rope_scaling(config.rope_scaling, keys.where());
  const bool is_counted =
      config.rope_scaling.type == RopeType::kLinear && !states_unscaled_positions(config);
  if (!is_counted) config.max_positions = extended_positions(positions, config.rope_scaling);
}

void read_rope(const GgufKeys& keys, const std::string& architecture, ModelConfig& config) {
  const std::string rope = architecture + ".rope.";
  config.max_positions = keys.integer(architecture + ".context_length");
  config.rope_base = keys.real_or(rope + "freq_base", 10'000);
  if (config.window_rope_base != 0) {
    config.window_rope_base =
        keys.real_or(architecture + "." + kWindowRopeGgufKey, config.window_rope_base);
  }
  read_rope_dims(keys, architecture + "." + kRopeDimsGgufKey, config);
  RopeScaling& scaling = config.rope_scaling;
  const double attention = keys.real_or(rope + "scaling.attn_factor", 1);
  if (scaling.type == RopeType::kLongRope) {
    return read_long_rope(keys, architecture, attention, config);
  }
  const auto factor = gguf_rope_factor(keys, rope);
  scaling.type = gguf_rope_type(keys, architecture + "." + kRopeTypeGgufKey, factor.value_or(1));
  const bool is_yarn = scaling.type == RopeType::kYarn;
  if (!is_yarn) refuse_unless(attention, 1, "rope.scaling.attn_factor", keys);
  const double multiplier = keys.real_or(architecture + "." + kYarnMultiplierGgufKey, 0);
  const bool has_growth = family_info(config).has_query_growth;
  const bool is_latent = config.latent.is_used();
  if (!has_growth && !is_latent) refuse_unless(multiplier, 0, kYarnMultiplierGgufKey, keys);
  const double growth = keys.real_or(architecture + "." + kQueryGrowthGgufKey, 0);
  if (!has_growth) refuse_unless(growth, 0, kQueryGrowthGgufKey, keys);
  config.query_growth = growth;
  refuse_unless(keys.real_or(rope + "scaling.yarn_ext_factor", 1), 1,
                "rope.scaling.yarn_ext_factor", keys);
  if (scaling.type == RopeType::kDefault) return;
  scaling.factor = factor ? *factor : keys.real(rope + "scaling.factor");
  if (!is_yarn) return;
  scaling.truncate = family_info(config).truncates_yarn;
  scaling.mscale = scaling.mscale_all_dim =
      is_latent ? multiplier / kLatentYarnMultiplier : multiplier;
  scaling.original_positions =
      keys.integer_or(architecture + "." + kOriginalPositionsGgufKey, config.max_positions);
  scaling.beta_fast = keys.real_or(rope + "scaling.yarn_beta_fast", 32);
  scaling.beta_slow = keys.real_or(rope + "scaling.yarn_beta_slow", 1);
  read_sharpening(keys, rope, attention, config);
  nn::check_rope_scaling(scaling, keys.path() + ": config");
  config.max_positions = extended_positions(config.max_positions, scaling);
}

}  // namespace weft::models
