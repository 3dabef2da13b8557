#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "weft/io/tensor_file.h"
#include "weft/models/config/config.h"

namespace weft::models {

/// The weights of a decoder by what they do.
enum class Part {
  kEmbedding,
  kFinalNorm,
  kHead,
  /// Norms before attention and the feed-forward layer, and after them (NormPlacement).
  kInputNorm,
  kFfnNorm,
  kAttentionOutNorm,
  kFfnOutNorm,
  kQuery,
  kKey,
  kValue,
  kOutput,
  kQueryNorm,
  kKeyNorm,
  kSinks,
  /// What all that a layer returns is multiplied by.
  kLayerFactor,
  /// Of layers' own inputs: their embedding, what projects to them and the norm behind it; in a
  /// layer what gates them, what projects them back and the norm behind it.
  kInputEmbedding,
  kInputProjection,
  kInputProjectionNorm,
  kInputGate,
  kInputOut,
  kInputOutNorm,
  /// Of experts beside a feed-forward layer: the norm after that one, those before and after the
  /// experts, the factors of what the router reads, and those of experts' weights.
  kPlainOutNorm,
  kExpertsNorm,
  kExpertsOutNorm,
  kRouterFactors,
  kExpertFactors,
  /// Of a gated convolution: its input's and its gates', its taps, and its output's.
  kConvolutionIn,
  kConvolution,
  kConvolutionOut,
  /// Of a gated delta net, beside its convolution: what projects to the convolution's channels, to
  /// the gates of values, and to each head's rate and decay; the logarithm of the head's own decay
  /// and what is added to a token's; the norm of values, and its output's.
  kDeltaChannels,
  kDeltaGate,
  kDeltaRate,
  kDeltaDecay,
  kDeltaDecayLog,
  kDeltaStepBias,
  kDeltaNorm,
  kDeltaOut,
  /// Of latent attention: what makes latents, of queries and of keys and values with the turned key
  /// features; their norms; what makes each head's keys and values.
  kQueryLatent,
  kQueryLatentNorm,
  kKvLatent,
  kKvLatentNorm,
  kKeyValue,
  kGate,
  kUp,
  kDown,
  kRouter,
  kChoiceBias,
  kExpertGate,
  kExpertUp,
  kExpertDown,
  kSharedRouter,
  kSharedGate,
  kSharedUp,
  kSharedDown,
};

/// Which one of them.
struct PartPlace {
  Part part;
  int64_t layer = 0;
  int64_t expert = 0;
};

/// The model's name without ".weight": Hugging Face's spelling, e.g.
/// "model.layers.0.mlp.up_proj". Families differ (weight_table.h).
std::string model_name(const ModelConfig& config, const PartPlace& place);
/// What the module of a weight is called in the module around it, "up_proj", and what that one is
/// called in the one around itself, "mlp".
std::string module_name(const ModelConfig& config, const PartPlace& place);
std::string outer_module_name(const ModelConfig& config, const PartPlace& place);
/// What a folder has in the place of the model's name: where a model of texts lies within one of
/// texts and pictures, "model.language_model.layers.0.mlp.up_proj", or as MLX has it
/// "language_model.model.layers.0.mlp.up_proj".
std::string folder_name(const io::TensorFile& file, const std::string& name);
/// GGUF's, e.g. "blk.0.ffn_up"; that of an expert is of all of a layer, stacked.
std::string gguf_name(const ModelConfig& config, const PartPlace& place);
/// MLX's name of all of a layer's experts, stacked, e.g.
/// "model.layers.0.mlp.switch_mlp.up_proj".
std::string mlx_experts_name(const ModelConfig& config, const PartPlace& place);
/// GGUF's name of one expert in files from before they were stacked, e.g. "blk.0.ffn_up.3".
std::string old_gguf_expert_name(const ModelConfig& config, const PartPlace& place);

/// Whether a part is the weight of a norm.
bool is_norm_part(Part part);
/// Whether a part is a parameter of the layer itself, whose name in folders has no ".weight".
bool is_bare_part(Part part);
/// What GGUF adds to the name of such a part: ".weight", ".bias" or nothing; of others ".weight".
std::string gguf_suffix(Part part);
/// Whether a part is a matrix of one expert of several.
bool is_expert_part(Part part);
/// What each weight of the model is, by its name without ".weight".
std::map<std::string, PartPlace> part_places(const ModelConfig& config);

}  // namespace weft::models
