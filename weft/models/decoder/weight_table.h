#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "weft/io/matrix_rules.h"
#include "weft/models/config/config.h"
#include "weft/models/decoder/decoder_names.h"

namespace weft::models {

/// What the elements along a dim of a weight are.
enum class WeightDim {
  /// The weight has no such dim: a vector's rows.
  kNone,
  /// A matrix of one row.
  kOne,
  kVocabulary,
  kWidth,
  /// The features of one head, of all heads, of all kv heads.
  kHead,
  kHeads,
  kKvHeads,
  /// One number for each head.
  kHeadCount,
  /// Of latent attention: all heads' values, their keys without the turned features and values, the
  /// latents, and that of keys and values with the turned features.
  kValueHeads,
  kKeyValueHeads,
  kQueryLatent,
  kKvLatent,
  kKvLatentAndRope,
  kFfn,
  kExperts,
  kExpertFfn,
  kSharedFfn,
  /// The channels of a convolution, those of what is multiplied around it as well, and the tokens
  /// that it sees.
  kChannels,
  kGatedChannels,
  kTaps,
  /// The features of all heads and as many gates, head by head.
  kGatedHeads,
  /// Of gated delta nets: the convolution's channels, the features of all values, one number for
  /// each value head, the features of one value.
  kDeltaChannels,
  kDeltaFeatures,
  kDeltaHeads,
  kDeltaValue,
  /// Of layers without a window, where these have other heads: the features of one head, of all
  /// heads, of all kv heads.
  kFullHead,
  kFullHeads,
  kFullKvHeads,
  /// Of feed-forward layers of layers that reuse keys.
  kReusingFfn,
  /// Of layers' own inputs: their vocabulary, the features of one layer, and of all.
  kInputVocabulary,
  kInput,
  kInputs,
};

/// Named splits of a decoder (WeightRules::splits).
inline constexpr std::string_view kHeadsSplit = "heads";
inline constexpr std::string_view kKvSplit = "kv";
inline constexpr std::string_view kHeadCountSplit = "head_count";
inline constexpr std::string_view kValueHeadsSplit = "value_heads";
inline constexpr std::string_view kKeyValueHeadsSplit = "kv_heads";
inline constexpr std::string_view kVocabSplit = "vocab";
inline constexpr std::string_view kFfnSplit = "ffn";
inline constexpr std::string_view kExpertFfnSplit = "expert_ffn";
inline constexpr std::string_view kSharedFfnSplit = "shared_ffn";
inline constexpr std::string_view kChannelSplit = "channels";
inline constexpr std::string_view kGatedChannelSplit = "gated_channels";
inline constexpr std::string_view kGatedHeadsSplit = "gated_heads";
inline constexpr std::string_view kDeltaChannelSplit = "delta_channels";
inline constexpr std::string_view kDeltaFeatureSplit = "delta_features";
inline constexpr std::string_view kDeltaHeadSplit = "delta_heads";
inline constexpr std::string_view kFullHeadsSplit = "full_heads";
inline constexpr std::string_view kFullKvSplit = "full_kv";
inline constexpr std::string_view kReusingFfnSplit = "reusing_ffn";
inline constexpr std::string_view kInputVocabSplit = "input_vocab";

/// Whether a configuration gives a matrix a bias.
using BiasFlag = bool (*)(const ModelConfig& config);

/// The whole's dims, rows first, and how it is cut.
struct WeightShape {
  WeightDim out = WeightDim::kNone;
  WeightDim in = WeightDim::kWidth;
  io::Cut cut = io::Cut::kWhole;
  std::string_view split = {};
  /// Of a vector of arrays: the elements of each.
  WeightDim array = WeightDim::kNone;
};

/// Which configurations have a weight, and in which layers; null: all.
struct WeightPresence {
  bool (*in_model)(const ModelConfig& config) = nullptr;
  bool (*in_layer)(const ModelConfig& config, int64_t layer) = nullptr;
};

/// One weight of a decoder in all formats. In names "*" stands for the layer, "#" for the expert: a
/// name with "*" is of every layer, one with "#" of every expert of a layer.
struct WeightRow {
  Part part;
  /// Hugging Face's name without ".weight", and GGUF's, where the experts of a layer are stacked.
  std::string_view model;
  std::string_view gguf;
  WeightShape shape;
  WeightPresence presence = {};
  /// Null: there is no bias, whatever the configuration says.
  BiasFlag bias = nullptr;
  /// Its rows are those of heads that rope turns, so GGUF may have them in another order.
  bool is_turned = false;
  /// Of experts: MLX's name of a layer's, stacked, and GGUF's of one in files from before that.
  std::string_view mlx = {};
  std::string_view old_gguf = {};

  bool is_of_layer() const { return model.find('*') != std::string_view::npos; }
  bool is_of_expert() const { return model.find('#') != std::string_view::npos; }
};

/// The row of a weight. Of a part that its layer does not have, the first one in the model; of one
/// that the model does not have, the first one.
const WeightRow& weight_row(const ModelConfig& config, const PartPlace& place);
/// Elements along a dim.
int64_t size_of(const ModelConfig& config, WeightDim dim);
/// Every weight that the model has, in its order.
std::vector<PartPlace> weight_places(const ModelConfig& config);
/// A row's name at a place.
std::string filled_name(std::string_view name, const PartPlace& place);

}  // namespace weft::models
