#include "weft/models/config/mixers/config_delta.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "weft/core/error.h"

namespace weft::models {
namespace {

using core::check;
using core::FormatError;

int64_t checked_interval(int64_t interval, const std::string& where) {
  check<FormatError>(interval >= 1, where, " is ", interval, ", expected at least 1");
  return interval;
}

}  // namespace

std::vector<int64_t> layers_between(int64_t interval, int64_t num_layers) {
  std::vector<int64_t> layers;
  for (int64_t layer = 0; layer < std::min(num_layers, kMaxLayers); ++layer) {
    if ((layer + 1) % interval != 0) layers.push_back(layer);
  }
  return layers;
}

void read_delta(const JsonKeys& keys, ModelConfig& config) {
  RecurrentConfig& recurrent = config.recurrent;
  for (const DeltaKey& key : kDeltaKeys) {
    recurrent.heads.*key.member = keys.integer_or(key.folder, key.fallback);
  }
  recurrent.num_taps = keys.integer_or(kDeltaTapsFolderKey, 4);
  if (keys.has("layer_types")) return;
  const int64_t interval =
      checked_interval(keys.integer_or(kAttentionIntervalKey, kAttentionInterval),
                       keys.where() + ": " + kAttentionIntervalKey);
  recurrent.layers = layers_between(interval, config.num_layers);
}

void read_delta(const GgufKeys& keys, const std::string& architecture, ModelConfig& config) {
  const auto full = [&](const char* key) { return architecture + "." + key; };
  RecurrentConfig& recurrent = config.recurrent;
  recurrent.num_taps = keys.integer(full(kDeltaTapsGgufKey));
  recurrent.heads.num_key_heads = keys.integer(full(kDeltaKeyHeadsGgufKey));
  recurrent.heads.num_value_heads = keys.integer(full(kDeltaValueHeadsGgufKey));
  recurrent.heads.key_dim = keys.integer(full(kDeltaKeyDimGgufKey));
  const int64_t features = keys.integer(full(kDeltaFeaturesGgufKey));
  const int64_t heads = recurrent.heads.num_value_heads;
  check<FormatError>(heads >= 1 && features % heads == 0, keys.path(), ": key '",
                     full(kDeltaFeaturesGgufKey), "' is ", features, " for ", heads,
                     " value heads, expected a multiple");
  recurrent.heads.value_dim = features / heads;
  const int64_t interval =
      checked_interval(keys.integer_or(full(kAttentionIntervalKey), kAttentionInterval),
                       keys.path() + ": key '" + full(kAttentionIntervalKey) + "'");
  recurrent.layers = layers_between(interval, config.num_layers);
}

void add_delta(const RecurrentConfig& recurrent, nlohmann::json& object) {
  for (const DeltaKey& key : kDeltaKeys) object[key.folder] = recurrent.heads.*key.member;
  object[kDeltaTapsFolderKey] = recurrent.num_taps;
}

}  // namespace weft::models
