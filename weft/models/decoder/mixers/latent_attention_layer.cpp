#include "weft/models/decoder/mixers/latent_attention_layer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>

#include <cmath>
#include <string>

#include "weft/core/error.h"
#include "weft/models/decoder/layer_parts.h"
#include "weft/nn/adapters/adapted_linear.h"
#include "weft/nn/adapters/adapter_scope.h"
#include "weft/nn/attention/rope_scaling.h"
#include "weft/nn/linear/dense_linear.h"
#include "weft/ops/collectives.h"

// Shape letters: those of latent_attention.h; B batch, D width, d the queries' latent or D, c what
// is kept of a token, R + P.

namespace weft::models {
namespace {

nn::LatentHeads heads_of(const ModelConfig& config) {
  nn::LatentHeads heads;
  heads.rank = config.latent.kv_rank;
  heads.rope_dim = config.rope_dims;
  heads.plain_dim = config.head_dim - config.rope_dims;
  heads.value_dim = config.latent.value_dim;
  const double sharpening = nn::latent_sharpening(config.rope_scaling);
  heads.scale = sharpening / std::sqrt(static_cast<double>(config.head_dim));
  return heads;
}

}  // namespace

LatentAttentionLayerImpl::LatentAttentionLayerImpl(const ModelConfig& config,
                                                   const WeightSource& source, int64_t layer,
                                                   const dist::Group& group)
    : layer_(layer), group_(group) {
  parts_.heads = heads_of(config);
  const auto name = [&](Part part) { return model_name(config, {part, layer}); };
  const auto own_name = [&](Part part) { return module_name(config, {part, layer}); };
  const auto whole = [&](Part part) {
    return register_module(own_name(part), nn::PartialLinear(source.linear(name(part), true)));
  };
  const auto norm_of = [&](Part part) {
    return register_module(own_name(part),
                           nn::RMSNorm(source.vector(name(part) + ".weight"), kLatentNormEps));
  };
  const auto to_heads = [&](Part part) {
    return register_module(own_name(part), all_to_sharded(source, name(part), group));
  };
  if (config.latent.query_rank > 0) {
    parts_.query_latent = whole(Part::kQueryLatent);
    parts_.query_norm = norm_of(Part::kQueryLatentNorm);
  }
  parts_.query = to_heads(Part::kQuery);
  parts_.kv_latent = whole(Part::kKvLatent);
  parts_.kv_norm = norm_of(Part::kKvLatentNorm);
  parts_.key_value = to_heads(Part::kKeyValue);
  parts_.output =
      register_module(own_name(Part::kOutput), sharded_to_all(source, name(Part::kOutput), group));
}

// What is whole has its gradient from the heads of all ranks, so all of it goes through one
// mp_copy. Without a latent of their own, queries are computed of the layer's input, which goes
// through another: what makes the latents sees the input itself, as its gradient is whole.
LatentAttentionLayerImpl::Shared LatentAttentionLayerImpl::shared(const at::Tensor& x_BTD) {
  const at::Tensor both_BTc = parts_.kv_latent->inner()->forward(x_BTD);
  const at::Tensor latent_BTR = parts_.kv_norm->forward(both_BTc.narrow(-1, 0, parts_.heads.rank));
  const at::Tensor keys_BTP = both_BTc.narrow(-1, parts_.heads.rank, parts_.heads.rope_dim);
  if (parts_.query_latent.is_empty()) {
    return {ops::mp_copy(x_BTD, group_), ops::mp_copy(at::cat({latent_BTR, keys_BTP}, -1), group_)};
  }
  const at::Tensor query_BTd =
      parts_.query_norm->forward(parts_.query_latent->inner()->forward(x_BTD));
  const at::Tensor all = ops::mp_copy(at::cat({query_BTd, latent_BTR, keys_BTP}, -1), group_);
  const int64_t d = query_BTd.size(-1);
  return {all.narrow(-1, 0, d), all.narrow(-1, d, parts_.heads.kept_dim())};
}

at::Tensor LatentAttentionLayerImpl::turned_queries(const at::Tensor& queries_BTd,
                                                    const nn::RopeAngles& angles) const {
  const at::Tensor q_BTnH =
      parts_.query->inner()->forward(queries_BTd).unflatten(-1, {-1, parts_.heads.key_dim()});
  return at::cat({q_BTnH.narrow(-1, 0, parts_.heads.plain_dim),
                  angles.apply(q_BTnH.narrow(-1, parts_.heads.plain_dim, parts_.heads.rope_dim))},
                 -1);
}

at::Tensor LatentAttentionLayerImpl::with_turned_keys(const at::Tensor& kept_BTc,
                                                      const nn::RopeAngles& angles) const {
  const at::Tensor keys_BT1P =
      kept_BTc.narrow(-1, parts_.heads.rank, parts_.heads.rope_dim).unsqueeze(2);
  return at::cat({kept_BTc.narrow(-1, 0, parts_.heads.rank), angles.apply(keys_BT1P).squeeze(2)},
                 -1);
}

at::Tensor LatentAttentionLayerImpl::expanded(const at::Tensor& q_BTnH, const at::Tensor& kept_BSc,
                                              const at::Tensor& documents_BS) const {
  const at::Tensor kv_BSf =
      parts_.key_value->inner()->forward(kept_BSc.narrow(-1, 0, parts_.heads.rank));
  return nn::expanded_latent_attention(
      q_BTnH, kv_BSf, kept_BSc.narrow(-1, parts_.heads.rank, parts_.heads.rope_dim), parts_.heads,
      documents_BS);
}

// A linear whose parameters may change is asked each time: a dense one has its weight at hand. What
// others hold is turned into numbers once, with adapters again for each other one.
at::Tensor LatentAttentionLayerImpl::absorbed(const at::Tensor& q_BTnH,
                                              const at::Tensor& kept_BSc) {
  const auto inner = parts_.key_value->inner();
  const bool may_change = !inner->parameters().empty();
  const bool is_adapted = dynamic_cast<const nn::AdaptedLinearImpl*>(inner.get()) != nullptr;
  const int64_t adapter = is_adapted ? nn::AdapterScope::only() : 0;
  if (may_change || dense_of_.lock() != inner || dense_adapter_ != adapter) {
    dense_weight_ = inner->dense_weight();
    dense_of_ = inner;
    dense_adapter_ = adapter;
  }
  const at::Tensor weight_fR = dense_weight_.to(q_BTnH.scalar_type());
  if (may_change) dense_weight_ = at::Tensor();
  if (parts_.output->ordered() != nullptr) {
    return nn::latent_attention_each(q_BTnH, kept_BSc, weight_fR, parts_.heads);
  }
  return nn::absorbed_latent_attention(q_BTnH, kept_BSc, weight_fR, parts_.heads);
}

at::Tensor LatentAttentionLayerImpl::forward(const at::Tensor& x_BTD, const PassContext& pass) {
  core::check<core::ConfigError>(pass.rows.empty(),
                                 "models.LatentAttentionLayer: a cut residual stream, expected "
                                 "a whole one; leave sequence parallelism out");
  const nn::RopeAngles& angles = pass.angles.all;
  const auto [queries_BTd, own_BTc] = shared(x_BTD);
  const at::Tensor q_BTnH = turned_queries(queries_BTd, angles);
  const at::Tensor kept_BTc = with_turned_keys(own_BTc, angles);
  if (pass.cache == nullptr) {
    return parts_.output->forward(expanded(q_BTnH, kept_BTc, pass.documents_BT));
  }
  const at::Tensor all_BSc = pass.cache->append(layer_, kept_BTc.unsqueeze(1), {})
                                 .first.squeeze(1)
                                 .to(q_BTnH.scalar_type());
  // One form for prompts and tokens where they are to have the same bits.
  const bool is_one = q_BTnH.size(1) == 1 || parts_.output->ordered() != nullptr;
  return parts_.output->forward(is_one ? absorbed(q_BTnH, all_BSc) : expanded(q_BTnH, all_BSc, {}));
}

}  // namespace weft::models
