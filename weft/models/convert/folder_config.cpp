#include "weft/models/convert/folder_config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "weft/core/error.h"
#include "weft/io/load_tensor.h"
#include "weft/models/config/config_rope.h"
#include "weft/models/config/families.h"
#include "weft/models/convert/llama3_divisors.h"

namespace weft::models {
namespace {

using core::check;
using core::ConfigError;

void read_divisors(const io::TensorFile& file, ModelConfig& config) {
  // What Gemma 4 divides by, the configuration has.
  if (file.find(kRopeDivisors) == nullptr || config.full_layers.is_used()) return;
  check<ConfigError>(config.rope_scaling == nn::RopeScaling(), file.path(), ": tensor '",
                     kRopeDivisors,
                     "' beside a rope scaling of its own, which config.json can't "
                     "say; keep the GGUF");
  const at::Tensor divisors = io::load_tensor(file, kRopeDivisors, at::kFloat);
  const auto scaling = divisors.numel() == rotated_dims(config) / 2
                           ? llama3_from_divisors(divisors, rotated_dims(config), config.rope_base)
                           : std::nullopt;
  check<ConfigError>(scaling.has_value(), file.path(), ": tensor '", kRopeDivisors,
                     "' is no rope scaling of Llama 3's kind, so config.json can't say it; keep "
                     "the GGUF");
  config.rope_scaling = *scaling;
}

// config.json has the positions before they are multiplied: as many as suffice.
void round_positions(ModelConfig& config) {
  if (!states_unscaled_positions(config)) return;
  const double factor = config.rope_scaling.factor;
  const double plain = std::ceil(static_cast<double>(config.max_positions) / factor);
  config.max_positions = static_cast<int64_t>(std::floor(plain * factor));
}

// Families that are one architecture in GGUF are several in folders: some have no windows.
std::string folder_family(const ModelConfig& config, const std::string& where) {
  const FamilyInfo& own = family_info(config);
  if (config.windows.empty() || own.windows.layers != WindowLayers::kNone) return config.family;
  for (const FamilyInfo* other : gguf_families(own.gguf, where)) {
    const bool has_experts = other->experts.count_key != nullptr;
    if (other->windows.layers != WindowLayers::kNone && !has_experts) {
      return std::string(other->name);
    }
  }
  return config.family;
}

}  // namespace

ModelConfig folder_config(const io::TensorFile& file) {
  ModelConfig config = read_config(file);
  if (!file.is_gguf()) return config;
  config.family = folder_family(config, file.path());
  read_divisors(file, config);
  round_positions(config);
  config_json(config);
  return config;
}

}  // namespace weft::models
