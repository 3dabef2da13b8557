#include "weft/models/registry.h"

#include "weft/core/error.h"
#include "weft/models/config/families.h"
#include "weft/models/decoder/decoder.h"
#include "weft/models/decoder/decoder_rules.h"

namespace weft::models {

namespace {

// The layers compute a plain decoder: a model that is something else is refused.
void refuse_unread_options(const ModelConfig& config) {
  ModelConfig plain = config;
  plain.norm_placement = NormPlacement::kBefore;
  if (plain.head_norms == HeadNorms::kAllHeads) plain.head_norms = HeadNorms::kNone;
  plain.rope_dims = 0;
  plain.layers_without_rope.clear();
  plain.embedding_scale = plain.residual_scale = plain.logits_scale = 1;
  plain.attention_scale = 0;
  core::check<core::ConfigError>(
      plain == config, "models: ", core::quote(config.family),
      ": norms after layers or over all heads, rope over a part of a head or of the layers, and "
      "scales other than 1 can be read and written, but not run; weft convert takes the model");
}

std::shared_ptr<CausalLM> make_plain_decoder(const ModelConfig& config, const WeightSource& source,
                                             const Stage& stage, const dist::Group& group) {
  refuse_unread_options(config);
  return make_decoder(config, source, stage, group);
}

}  // namespace

const Family& find_family(const std::string& name) {
  static const Family decoder = {decoder_rules, make_plain_decoder};
  core::check<core::ConfigError>(find_family_info(name) != nullptr, "models: unknown family '",
                                 name, "', expected one of ", core::list_text(family_names()));
  return decoder;
}

}  // namespace weft::models
