#include "weft/models/decoder/token_mixer.h"

#include "weft/models/decoder/attention_layer.h"
#include "weft/models/decoder/decoder_names.h"
#include "weft/models/decoder/mixers/gated_delta_layer.h"
#include "weft/models/decoder/mixers/latent_attention_layer.h"
#include "weft/models/decoder/mixers/short_convolution_layer.h"

namespace weft::models {

NamedTokenMixer make_token_mixer(const ModelConfig& config, const WeightSource& source,
                                 int64_t layer, const dist::Group& group) {
  if (config.is_recurrent(layer) && config.recurrent.kind == RecurrentKind::kGatedDelta) {
    return {outer_module_name(config, {Part::kDeltaChannels, layer}),
            std::make_shared<GatedDeltaLayerImpl>(config, source, layer, group)};
  }
  if (config.is_recurrent(layer)) {
    return {outer_module_name(config, {Part::kConvolutionIn, layer}),
            std::make_shared<ShortConvolutionLayerImpl>(config, source, layer, group)};
  }
  const std::string name = outer_module_name(config, {Part::kQuery, layer});
  if (config.latent.is_used()) {
    return {name, std::make_shared<LatentAttentionLayerImpl>(config, source, layer, group)};
  }
  return {name, std::make_shared<AttentionLayerImpl>(config, source, layer, group)};
}

}  // namespace weft::models
