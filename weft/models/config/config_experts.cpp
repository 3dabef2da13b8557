// The experts of a model from config.json.
#include "weft/models/config/config_experts.h"

#include <nlohmann/json.hpp>

#include "weft/core/error.h"

namespace weft::models {
namespace {

using core::check;
using core::ConfigError;
using core::FormatError;
using core::Json;

// The name that the file has for the number of experts, else the family's own.
const char* count_key(const JsonKeys& keys, const FamilyExperts& family) {
  if (keys.has(family.count_key)) return family.count_key;
  for (const char* key : kExpertCountKeys) {
    if (keys.has(key)) return key;
  }
  return family.count_key;
}

void read_own_experts(const JsonKeys& keys, const FamilyExperts& family, ExpertsConfig& experts) {
  experts.num_experts = keys.integer(count_key(keys, family));
  if (experts.num_experts == 0) return;
  experts.experts_per_token = keys.integer(kExpertsPerToken.folder);
  experts.ffn_width = keys.integer(kExpertWidth.folder);
  experts.normalizes_weights = keys.flag_or("norm_topk_prob", family.is_normalized);
  experts.layer_step = keys.integer_or("decoder_sparse_step", 1);
  if (family.has_shared) {
    experts.shared_ffn_width = keys.integer(kSharedExpertWidth.folder);
    check<FormatError>(experts.shared_ffn_width >= 1, keys.where(), ": ", kSharedExpertWidth.folder,
                       " is ", experts.shared_ffn_width, ", expected at least 1");
  }
  const Json* plain = keys.find("mlp_only_layers");
  if (plain == nullptr) return;
  const std::string where = keys.where() + ": mlp_only_layers";
  check<FormatError>(plain->is_array(), where, ": expected a list");
  for (const Json& layer : *plain) experts.plain_layers.push_back(core::to_int64(layer, where));
}

// What checkpoints say about routing although all of a family's have the same.
void check_routing(const JsonKeys& keys, const FamilyRouting& family) {
  const auto check_text = [&](const char* key, const std::string& expected) {
    const std::string text = keys.text_or(key, expected);
    check<ConfigError>(text == expected, keys.where(), ": ", key, " ", core::quote(text),
                       " is not supported, expected ", core::quote(expected));
  };
  const bool is_sigmoid = family.scores == RouterScores::kSigmoid;
  check_text("scoring_func", is_sigmoid ? "sigmoid" : "softmax");
  if (!family.has_method_key) check_text(kMethodFolderKey, "noaux_tc");
  const int64_t step = keys.integer_or("moe_layer_freq", 1);
  check<ConfigError>(step == 1, keys.where(), ": moe_layer_freq is ", step,
                     ", which is not supported, expected 1");
}

// Groups that a method does without are none.
void read_groups(const JsonKeys& keys, const FamilyRouting& family, ExpertsConfig& experts) {
  if (family.has_method_key) {
    const std::string method = keys.text_or(kMethodFolderKey, kGreedyMethod);
    if (method == kGreedyMethod) return;
    check<ConfigError>(method == kGroupsMethod, keys.where(), ": ", kMethodFolderKey, " ",
                       core::quote(method), " is not supported, expected one of [", kGreedyMethod,
                       ", ", kGroupsMethod, "]");
  }
  for (const RoutedKey& key : kRoutedKeys) {
    experts.*key.member = keys.integer_or(key.folder, family.*key.fallback);
  }
}

// The numbers of the layers that a list calls dense.
std::vector<int64_t> listed_plain_layers(const Json& list, int64_t num_layers,
                                         const std::string& where) {
  check<FormatError>(list.is_array(), where, ": expected a list");
  check<FormatError>(static_cast<int64_t>(list.size()) == num_layers, where, ": ", list.size(),
                     " layers, expected ", num_layers);
  std::vector<int64_t> plain;
  int64_t layer = 0;
  for (const Json& type : list) {
    const std::string name = core::to_string(type, where);
    check<ConfigError>(name == kDenseLayer || name == kSparseLayer, where, ": ", core::quote(name),
                       " is not supported, expected one of [", kDenseLayer, ", ", kSparseLayer,
                       "]");
    if (name == kDenseLayer) plain.push_back(layer);
    ++layer;
  }
  return plain;
}

std::vector<int64_t> routed_plain_layers(const JsonKeys& keys, const FamilyRouting& family,
                                         int64_t num_layers) {
  const Json* list = family.has_layer_list ? keys.find(kLayerListFolderKey) : nullptr;
  if (list != nullptr) {
    return listed_plain_layers(*list, num_layers, keys.where() + ": " + kLayerListFolderKey);
  }
  const int64_t count = keys.integer_or(kPlainCountFolderKey, family.num_plain);
  check<FormatError>(count >= 0 && count <= kMaxLayers, keys.where(), ": ", kPlainCountFolderKey,
                     " is ", count, ", expected 0 to ", kMaxLayers);
  std::vector<int64_t> plain;
  for (int64_t layer = 0; layer < count; ++layer) plain.push_back(layer);
  return plain;
}

void read_routed_experts(const JsonKeys& keys, const FamilyExperts& family, ModelConfig& config) {
  ExpertsConfig& experts = config.experts;
  const FamilyRouting& routing = family.routing;
  experts.num_experts = keys.integer(count_key(keys, family));
  if (experts.num_experts == 0) return;
  check_routing(keys, routing);
  experts.experts_per_token = keys.integer(kExpertsPerToken.folder);
  experts.ffn_width = keys.integer(kExpertWidth.folder);
  experts.normalizes_weights = keys.flag_or("norm_topk_prob", !routing.is_never_normalized);
  check<ConfigError>(!experts.normalizes_weights || !routing.is_never_normalized, keys.where(),
                     ": norm_topk_prob is true, which is not supported, expected false");
  read_groups(keys, routing, experts);
  experts.weights_scale = keys.real_or(kWeightsScaleFolderKey, routing.weights_scale);
  const int64_t shared = keys.integer_or(kSharedCountFolderKey, routing.num_shared);
  check<FormatError>(shared >= 0 && shared <= experts.num_experts, keys.where(), ": ",
                     kSharedCountFolderKey, " is ", shared, ", expected 0 to ",
                     experts.num_experts);
  experts.shared_ffn_width = shared * experts.ffn_width;
  experts.plain_layers = routed_plain_layers(keys, routing, config.num_layers);
}

}  // namespace

void read_experts(const JsonKeys& keys, const FamilyExperts& family, ModelConfig& config) {
  if (family.count_key == nullptr) return;
  if (family.has_routed_keys) {
    read_routed_experts(keys, family, config);
    return;
  }
  if (family.has_own_width) {
    read_own_experts(keys, family, config.experts);
    return;
  }
  const char* count = count_key(keys, family);
  config.experts.num_experts = keys.integer_or(count, 8);
  check<FormatError>(config.experts.num_experts >= 1, keys.where(), ": ", count, " is ",
                     config.experts.num_experts, ", expected at least 1");
  config.experts.experts_per_token = keys.integer_or(kExpertsPerToken.folder, 2);
  config.experts.ffn_width = config.ffn_width;
}

}  // namespace weft::models
