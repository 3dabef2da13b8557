#pragma once

#include "weft/models/config/config_recurrent.h"
#include "weft/models/config/families.h"
#include "weft/models/decoder/weight_table.h"

namespace weft::models {

// What the rows of the table share: the shapes of weights and how they are cut.

inline constexpr WeightShape kVocabulary = {WeightDim::kVocabulary, WeightDim::kWidth,
                                            io::Cut::kRows, kVocabSplit};
inline constexpr WeightShape kOfWidth = {WeightDim::kNone, WeightDim::kWidth};
inline constexpr WeightShape kOfHead = {WeightDim::kNone, WeightDim::kHead};
inline constexpr WeightShape kOfHeads = {WeightDim::kNone, WeightDim::kHeads, io::Cut::kRows,
                                         kHeadsSplit};
inline constexpr WeightShape kOfKvHeads = {WeightDim::kNone, WeightDim::kKvHeads, io::Cut::kRows,
                                           kKvSplit};
inline constexpr WeightShape kToHeads = {WeightDim::kHeads, WeightDim::kWidth, io::Cut::kRows,
                                         kHeadsSplit};
inline constexpr WeightShape kToKvHeads = {WeightDim::kKvHeads, WeightDim::kWidth, io::Cut::kRows,
                                           kKvSplit};
inline constexpr WeightShape kOfHeadCount = {WeightDim::kNone, WeightDim::kHeadCount,
                                             io::Cut::kRows, kHeadCountSplit};
inline constexpr WeightShape kFromHeads = {WeightDim::kWidth, WeightDim::kHeads, io::Cut::kColumns,
                                           kHeadsSplit};
inline constexpr WeightShape kToFfn = {WeightDim::kFfn, WeightDim::kWidth, io::Cut::kRows,
                                       kFfnSplit};
inline constexpr WeightShape kFromFfn = {WeightDim::kWidth, WeightDim::kFfn, io::Cut::kColumns,
                                         kFfnSplit};
inline constexpr WeightShape kToExperts = {WeightDim::kExperts, WeightDim::kWidth};
inline constexpr WeightShape kOfExperts = {WeightDim::kNone, WeightDim::kExperts};
inline constexpr WeightShape kOneRow = {WeightDim::kOne, WeightDim::kWidth};
inline constexpr WeightShape kToExpertFfn = {WeightDim::kExpertFfn, WeightDim::kWidth,
                                             io::Cut::kRows, kExpertFfnSplit};
inline constexpr WeightShape kFromExpertFfn = {WeightDim::kWidth, WeightDim::kExpertFfn,
                                               io::Cut::kColumns, kExpertFfnSplit};
inline constexpr WeightShape kToSharedFfn = {WeightDim::kSharedFfn, WeightDim::kWidth,
                                             io::Cut::kRows, kSharedFfnSplit};
inline constexpr WeightShape kFromSharedFfn = {WeightDim::kWidth, WeightDim::kSharedFfn,
                                               io::Cut::kColumns, kSharedFfnSplit};
inline constexpr WeightShape kOfQueryLatent = {WeightDim::kNone, WeightDim::kQueryLatent};
inline constexpr WeightShape kOfKvLatent = {WeightDim::kNone, WeightDim::kKvLatent};
inline constexpr WeightShape kToQueryLatent = {WeightDim::kQueryLatent, WeightDim::kWidth};
inline constexpr WeightShape kToKvLatent = {WeightDim::kKvLatentAndRope, WeightDim::kWidth};
inline constexpr WeightShape kLatentToHeads = {WeightDim::kHeads, WeightDim::kQueryLatent,
                                               io::Cut::kRows, kHeadsSplit};
inline constexpr WeightShape kLatentToKv = {WeightDim::kKeyValueHeads, WeightDim::kKvLatent,
                                            io::Cut::kRows, kKeyValueHeadsSplit};
inline constexpr WeightShape kFromValueHeads = {WeightDim::kWidth, WeightDim::kValueHeads,
                                                io::Cut::kColumns, kValueHeadsSplit};
inline constexpr WeightShape kToGatedChannels = {WeightDim::kGatedChannels, WeightDim::kWidth,
                                                 io::Cut::kRows, kGatedChannelSplit};
inline constexpr WeightShape kFromChannels = {WeightDim::kWidth, WeightDim::kChannels,
                                              io::Cut::kColumns, kChannelSplit};
inline constexpr WeightShape kTapsOfChannels = {WeightDim::kNone, WeightDim::kChannels,
                                                io::Cut::kRows, kChannelSplit, WeightDim::kTaps};

inline constexpr WeightShape kToGatedHeads = {WeightDim::kGatedHeads, WeightDim::kWidth,
                                              io::Cut::kRows, kGatedHeadsSplit};
inline constexpr WeightShape kToDeltaChannels = {WeightDim::kDeltaChannels, WeightDim::kWidth,
                                                 io::Cut::kRows, kDeltaChannelSplit};
inline constexpr WeightShape kToDeltaFeatures = {WeightDim::kDeltaFeatures, WeightDim::kWidth,
                                                 io::Cut::kRows, kDeltaFeatureSplit};
inline constexpr WeightShape kToDeltaHeads = {WeightDim::kDeltaHeads, WeightDim::kWidth,
                                              io::Cut::kRows, kDeltaHeadSplit};
inline constexpr WeightShape kFromDeltaFeatures = {WeightDim::kWidth, WeightDim::kDeltaFeatures,
                                                   io::Cut::kColumns, kDeltaFeatureSplit};
inline constexpr WeightShape kTapsOfDeltaChannels = {WeightDim::kNone, WeightDim::kDeltaChannels,
                                                     io::Cut::kRows, kDeltaChannelSplit,
                                                     WeightDim::kTaps};
inline constexpr WeightShape kOfDeltaHeads = {WeightDim::kNone, WeightDim::kDeltaHeads,
                                              io::Cut::kRows, kDeltaHeadSplit};
inline constexpr WeightShape kOfFullHead = {WeightDim::kNone, WeightDim::kFullHead};
inline constexpr WeightShape kToFullHeads = {WeightDim::kFullHeads, WeightDim::kWidth,
                                             io::Cut::kRows, kFullHeadsSplit};
inline constexpr WeightShape kToFullKvHeads = {WeightDim::kFullKvHeads, WeightDim::kWidth,
                                               io::Cut::kRows, kFullKvSplit};
inline constexpr WeightShape kFromFullHeads = {WeightDim::kWidth, WeightDim::kFullHeads,
                                               io::Cut::kColumns, kFullHeadsSplit};
inline constexpr WeightShape kToReusingFfn = {WeightDim::kReusingFfn, WeightDim::kWidth,
                                              io::Cut::kRows, kReusingFfnSplit};
inline constexpr WeightShape kFromReusingFfn = {WeightDim::kWidth, WeightDim::kReusingFfn,
                                                io::Cut::kColumns, kReusingFfnSplit};
inline constexpr WeightShape kInputVocabulary = {WeightDim::kInputVocabulary, WeightDim::kInputs,
                                                 io::Cut::kRows, kInputVocabSplit};
inline constexpr WeightShape kToInputs = {WeightDim::kInputs, WeightDim::kWidth};
inline constexpr WeightShape kToInput = {WeightDim::kInput, WeightDim::kWidth};
inline constexpr WeightShape kFromInput = {WeightDim::kWidth, WeightDim::kInput};
inline constexpr WeightShape kOfInput = {WeightDim::kNone, WeightDim::kInput};
inline constexpr WeightShape kOfOne = {WeightDim::kNone, WeightDim::kOne};
inline constexpr WeightShape kOfDeltaValue = {WeightDim::kNone, WeightDim::kDeltaValue};

/// Whether a configuration's weights have LFM2's names.
inline bool is_lfm2(const ModelConfig& config) {
  const FamilyInfo* family = find_family_info(config.family);
  return family != nullptr && has_lfm2_names(*family);
}
/// Whether its layers without attention are gated delta nets.
inline bool has_delta_nets(const ModelConfig& config) {
  const FamilyInfo* family = find_family_info(config.family);
  return family != nullptr && has_delta_nets(*family);
}
/// Whether a layer's token mixer is attention of the heads that most layers have.
inline bool has_usual_heads(const ModelConfig& config, int64_t layer) {
  return !config.is_recurrent(layer) && !config.has_full_heads(layer);
}
/// Whether it has keys and values of its own as well.
inline bool has_usual_keys(const ModelConfig& config, int64_t layer) {
  return has_usual_heads(config, layer) && !config.reuses_keys(layer);
}
/// Whether its feed-forward layer is as wide as those of layers that reuse keys alone.
inline bool has_reusing_ffn(const ModelConfig& config, int64_t layer) {
  return config.reusing.ffn_width > 0 && config.reuses_keys(layer);
}

/// What ModelConfig says, as the condition of a row.
inline bool has_experts(const ModelConfig& config, int64_t layer) {
  return config.has_experts(layer);
}

inline constexpr BiasFlag kQkvBias = [](const ModelConfig& config) { return config.has_qkv_bias; };
inline constexpr BiasFlag kOutputBias = [](const ModelConfig& config) {
  return config.has_output_bias;
};

}  // namespace weft::models
