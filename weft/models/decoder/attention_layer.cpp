#include "weft/models/decoder/attention_layer.h"

#include <ATen/Parallel.h>
#include <ATen/ops/sigmoid.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "weft/models/decoder/layer_parts.h"
#include "weft/nn/attention/attend_each.h"
#include "weft/nn/attention/attention.h"
#include "weft/nn/attention/rotary_attention.h"
#include "weft/nn/linear/fused_linear.h"

// Shape letters: B batch, T tokens, S positions, D width, H head dim; n, k: this rank's heads and
// kv heads.

namespace weft::models {

namespace {

QueryKeyNorm make_norm(const ModelConfig& config, const WeightSource& source,
                       const PartPlace& place, const dist::Group& group) {
  QueryKeyNorm norm;
  if (config.head_norms == HeadNorms::kNone) return norm;
  const std::string base = model_name(config, place);
  at::Tensor weight = source.vector(base + ".weight");
  if (config.head_norms == HeadNorms::kEachHead) {
    norm.each =
        nn::HeadRMSNorm(std::move(weight), config.norm_eps, group, false, config.norm_offset);
  } else {
    norm.all = nn::ShardedRMSNorm(std::move(weight), source.layout(base), config.norm_eps, group);
  }
  return norm;
}

bool has_rope(const ModelConfig& config, int64_t layer) {
  return std::ranges::find(config.layers_without_rope, layer) == config.layers_without_rope.end();
}

bool has_keys(const ModelConfig& config, int64_t layer) { return !config.reuses_keys(layer); }

bool has_values(const ModelConfig& config, int64_t layer) {
  const bool are_keys = config.has_full_heads(layer) && config.full_layers.keys_are_values;
  return has_keys(config, layer) && !are_keys;
}

// libtorch's own rounds otherwise where a tensor's last vector is not full.
at::Tensor sigmoid_of_each(const at::Tensor& x) {
  at::Tensor y = x.to(at::kFloat).clone(at::MemoryFormat::Contiguous);
  auto* const numbers = y.mutable_data_ptr<float>();
  constexpr int64_t kGrain = 1024;
  at::parallel_for(0, y.numel(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) numbers[i] = 1 / (1 + std::exp(-numbers[i]));
  });
  return y;
}

bool is_read_by_others(const ModelConfig& config, int64_t layer) {
  for (int64_t other = config.first_reusing(); other < config.num_layers; ++other) {
    if (config.kv_layer(other) == layer) return true;
  }
  return false;
}

nn::AttentionSpec make_spec(const ModelConfig& config, const WeightSource& source, int64_t layer) {
  nn::AttentionSpec spec;
  spec.kv_of_head = held_heads(config, source, layer).kv_of_head;
  spec.window = config.window(layer);
  spec.scale = config.attention_scale;
  spec.cap = config.score_cap;
  return spec;
}

AttentionParts make_parts(const ModelConfig& config, const WeightSource& source, int64_t layer,
                          const dist::Group& group) {
  const auto to_heads = [&](Part part) {
    return all_to_sharded(source, model_name(config, {part, layer}), group);
  };
  AttentionParts parts = {to_heads(Part::kQuery),
                          has_keys(config, layer) ? to_heads(Part::kKey) : nullptr,
                          has_values(config, layer) ? to_heads(Part::kValue) : nullptr,
                          sharded_to_all(source, model_name(config, {Part::kOutput, layer}), group),
                          make_norm(config, source, {Part::kQueryNorm, layer}, group),
                          has_keys(config, layer)
                              ? make_norm(config, source, {Part::kKeyNorm, layer}, group)
                              : QueryKeyNorm{},
                          make_spec(config, source, layer)};
  parts.has_rope = has_rope(config, layer);
  parts.has_gates = config.gates_attention;
  parts.norms_values = config.norms_values;
  if (config.has_sinks) {
    const std::string base = model_name(config, {Part::kSinks, layer});
    parts.sinks = nn::HeadSinks(source.vector(base + ".weight"), source.layout(base));
    parts.spec.sinks = parts.sinks->weight;
  }
  return parts;
}

}  // namespace

AttentionLayerImpl::AttentionLayerImpl(const ModelConfig& config, const WeightSource& source,
                                       int64_t layer, const dist::Group& group)
    : layer_(layer),
      kv_layer_(config.kv_layer(layer)),
      is_read_by_others_(is_read_by_others(config, layer)),
      head_dim_(config.head_dim_of(layer)),
      norm_eps_(config.norm_eps),
      parts_(make_parts(config, source, layer, group)) {
  register_module("q_proj", parts_.q_proj);
  if (!parts_.k_proj.is_empty()) register_module("k_proj", parts_.k_proj);
  if (!parts_.v_proj.is_empty()) register_module("v_proj", parts_.v_proj);
  register_module(module_name(config, {Part::kOutput, layer}), parts_.o_proj);
  const auto add = [&](Part part, const QueryKeyNorm& norm) {
    if (!norm.each.is_empty()) register_module(module_name(config, {part, layer}), norm.each);
    if (!norm.all.is_empty()) register_module(module_name(config, {part, layer}), norm.all);
  };
  if (!parts_.sinks.is_empty()) register_module("sinks", parts_.sinks);
  add(Part::kQueryNorm, parts_.q_norm);
  add(Part::kKeyNorm, parts_.k_norm);
}

at::Tensor AttentionLayerImpl::heads(const at::Tensor& x, const PassContext& pass) const {
  const int64_t tokens = x.numel() / x.size(-1) / pass.num_sequences;
  return x.view({pass.num_sequences, tokens, x.size(-1) / head_dim_, head_dim_});
}

at::Tensor AttentionLayerImpl::normed_heads(QueryKeyNorm& norm, const at::Tensor& x,
                                            const PassContext& pass) const {
  if (!norm.all.is_empty()) return heads(norm.all->forward(x), pass);
  const at::Tensor x_BTnH = heads(x, pass);
  return norm.each.is_empty() ? x_BTnH : norm.each->forward(x_BTnH);
}

at::Tensor AttentionLayerImpl::values(const at::Tensor& x, const PassContext& pass) const {
  const at::Tensor v_BTkH = heads(x, pass);
  return parts_.norms_values ? nn::unit_norm(v_BTkH, norm_eps_) : v_BTkH;
}

// Keys and values as a cache gives them.
at::Tensor AttentionLayerImpl::attended_to_cached(const at::Tensor& q_BTnH,
                                                  const nn::RopeAngles& own,
                                                  const Cached& cached) const {
  const auto& [k_BkSH, v_BkSH] = cached;
  if (parts_.o_proj->ordered() != nullptr) {
    return nn::attend_each(own.apply(q_BTnH).to(at::kFloat), k_BkSH.to(at::kFloat),
                           v_BkSH.to(at::kFloat), parts_.spec);
  }
  const at::Tensor q_BnTH = own.apply(q_BTnH).transpose(1, 2);
  return nn::grouped_query_attention(q_BnTH, k_BkSH.to(q_BnTH.scalar_type()),
                                     v_BkSH.to(q_BnTH.scalar_type()), parts_.spec);
}

// Returns [B, T, n * H]. Adds to the cache if there is one.
at::Tensor AttentionLayerImpl::attended(const at::Tensor& q_BTnH, const at::Tensor& k_BTkH,
                                        const at::Tensor& v_BTkH, const PassContext& pass) {
  const nn::RopeAngles own = angles(pass, q_BTnH.size(1));
  if (pass.cache == nullptr) {
    if (is_read_by_others_ && pass.kept_keys) (*pass.kept_keys)[layer_] = {k_BTkH, v_BTkH};
    return nn::rotary_attention(q_BTnH, k_BTkH, v_BTkH, own, parts_.spec, pass.documents_BT);
  }
  return attended_to_cached(
      q_BTnH, own,
      pass.cache->append(layer_, own.apply(k_BTkH).transpose(1, 2), v_BTkH.transpose(1, 2)));
}

nn::RopeAngles AttentionLayerImpl::angles(const PassContext& pass, int64_t tokens) const {
  return parts_.has_rope ? pass.angles.of(parts_.spec.window != 0) : nn::RopeAngles::none(tokens);
}

// The same with keys and values that another layer has made in this pass.
at::Tensor AttentionLayerImpl::attended_to_others(const at::Tensor& q_BTnH,
                                                  const PassContext& pass) {
  const nn::RopeAngles own = angles(pass, q_BTnH.size(1));
  if (pass.cache == nullptr) {
    const auto& [k_BTkH, v_BTkH] = pass.kept_keys->at(kv_layer_);
    return nn::rotary_attention(q_BTnH, k_BTkH, v_BTkH, own, parts_.spec, pass.documents_BT);
  }
  return attended_to_cached(q_BTnH, own, pass.cache->appended(kv_layer_, q_BTnH.size(1)));
}

at::Tensor AttentionLayerImpl::forward(const at::Tensor& x_BTD, const PassContext& pass) {
  std::vector<std::shared_ptr<nn::LinearLike>> linears = {parts_.q_proj->inner()};
  const bool has_keys = !parts_.k_proj.is_empty();
  if (has_keys) linears.push_back(parts_.k_proj->inner());
  if (!parts_.v_proj.is_empty()) linears.push_back(parts_.v_proj->inner());
  const auto projected = nn::linears_of_shared(linears, x_BTD, parts_.q_proj->group(), pass.rows);
  at::Tensor queries = projected[0], gates_BTn;
  if (parts_.has_gates) {
    const auto halves = heads(queries, pass).unflatten(2, {-1, 2}).unbind(3);
    queries = halves[0].flatten(2);
    const bool is_exact = parts_.o_proj->ordered() != nullptr;
    const at::Tensor open_BTn = halves[1].flatten(2);
    gates_BTn = is_exact ? sigmoid_of_each(open_BTn) : at::sigmoid(open_BTn);
  }
  at::Tensor q_BTnH = normed_heads(parts_.q_norm, queries, pass);
  const at::Tensor& factors = pass.angles.query_factors;
  if (factors.defined()) q_BTnH = q_BTnH * factors.to(q_BTnH.scalar_type());
  at::Tensor out_BTn = has_keys ? attended(q_BTnH, normed_heads(parts_.k_norm, projected[1], pass),
                                           values(projected.back(), pass), pass)
                                : attended_to_others(q_BTnH, pass);
  if (parts_.has_gates) out_BTn = out_BTn * gates_BTn;
  return parts_.o_proj->forward_rows(pass.rows.empty() ? out_BTn : out_BTn.flatten(0, 1),
                                     pass.rows);
}

}  // namespace weft::models
