// What a fused pass takes out of the modules.
#include <ATen/ops/ones.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "weft/models/passes/fused_decoder.h"
#include "weft/models/passes/modules_pass.h"
#include "weft/nn/linear/adapt.h"

namespace weft::models {

FusedDecoder::FusedDecoder(const PassParts& parts)
    : width_(parts.config.width),
      kv_heads_(parts.kv_heads),
      cache_options_(cache_options(parts)),
      norm_eps_(static_cast<float>(parts.config.norm_eps)),
      gating_(parts.config.gating),
      norms_over_ranks_(parts.config.head_norms == HeadNorms::kAllHeads && parts.group.size() > 1),
      residual_scale_(static_cast<float>(parts.config.residual_scale)),
      group_(parts.group),
      whole_q_(static_cast<float>(parts.config.num_heads * parts.config.head_dim)),
      whole_k_(static_cast<float>(parts.config.num_kv_heads * parts.config.head_dim)) {
  cache_options_.dtype = at::kHalf;
  last_norm_ = keep(parts.last_norm->whole_weight());
  if (parts.ordered.has_value()) {
    ordered_heads_.emplace(group_, parts.ordered->heads);
    ordered_ffn_.emplace(group_, parts.ordered->ffn);
  }
  is_complete_ =
      std::ranges::all_of(parts.blocks, [this](const auto& block) { return add(block); });
}

bool FusedDecoder::add(const DecoderBlock& block) {
  Layer layer;
  if (block->factor().defined()) layer.factor = block->factor().item().toFloat();
  layer.attention_norms = keep(block->attention_norms());
  layer.ffn_norms = keep(block->ffn_norms());
  if (block->attention().is_empty() ? !add_mixer(block, layer) : !add_attention(block, layer)) {
    return false;
  }
  if (!block->feed_forward().is_empty() && !add_feed_forward(block, layer)) return false;
  if (!block->experts().is_empty() && !add_experts(block, layer)) return false;
  if (!block->input().gate.is_empty() && !add_input(block->input(), layer)) return false;
  layers_.push_back(std::move(layer));
  return true;
}

// One that runs as a module reads keys and values as they are kept, as float32 fastest.
bool FusedDecoder::add_mixer(const DecoderBlock& block, Layer& layer) {
  TokenMixerImpl& mixer = block.ptr()->mixer();
  auto* const delta = dynamic_cast<GatedDeltaLayerImpl*>(&mixer);
  if (delta != nullptr && add_delta(*delta, layer)) return true;
  layer.mixer = &mixer;
  if (mixer.state_sizes().empty()) cache_options_.dtype = at::kFloat;
  return true;
}

bool FusedDecoder::add_delta(GatedDeltaLayerImpl& mixer, Layer& layer) {
  // Its output's sum has no order of its own yet.
  if (ordered_heads_.has_value()) return false;
  layer.delta = FusedDelta::take(mixer, held_);
  if (!layer.delta) return false;
  for (const Linear& linear : layer.delta->linears) {
    if (!keep_linear(linear)) return false;
    inputs_.add_wants(quant::PanelInputs::Wants::of(linear->weight));
  }
  return true;
}

bool FusedDecoder::add_attention(const DecoderBlock& block, Layer& layer) {
  layer.head_dim = kv_heads_[layers_.size()].head_dim;
  layer.kernel =
      &attentions_.try_emplace(layer.head_dim, layer.head_dim, ordered_heads_.has_value())
           .first->second;
  const auto linears = held_.take_attention<nn::PanelLinearImpl>(block);
  const AttentionParts& parts = block->attention()->parts();
  std::vector<Linear> own = {linears.q};
  if (!parts.k_proj.is_empty()) own.push_back(linears.k);
  if (!parts.v_proj.is_empty()) own.push_back(linears.v);
  layer.num_projections = own.size();
  own.push_back(linears.o);
  for (const Linear& linear : own) {
    if (!keep_linear(linear)) return false;
    inputs_.add_wants(quant::PanelInputs::Wants::of(linear->weight));
  }
  layer.q = quant::PanelView(linears.q->weight);
  // Of those that there are not the views are of the ones before: they are multiplied by none.
  layer.k = linears.k == nullptr ? layer.q : quant::PanelView(linears.k->weight);
  layer.v = linears.v == nullptr ? layer.k : quant::PanelView(linears.v->weight);
  layer.o = quant::PanelView(linears.o->weight);
  layer.q_bias = keep(linears.q->bias);
  if (linears.k != nullptr) layer.k_bias = keep(linears.k->bias);
  if (linears.v != nullptr) layer.v_bias = keep(linears.v->bias);
  layer.o_bias = keep(parts.o_proj->bias);
  layer.has_gates = parts.has_gates;
  layer.heads = linears.q->out_features() / layer.head_dim / (layer.has_gates ? 2 : 1);
  layer.kv_layer = block->attention()->kv_layer();
  layer.kv_heads = kv_heads_[static_cast<size_t>(layer.kv_layer)].count;
  layer.attention = parts.spec;
  if (parts.spec.sinks.defined()) {
    layer.attention.sinks = parts.spec.sinks.detach().to(at::kFloat).contiguous();
  }
  layer.has_rope = parts.has_rope;
  take_head_norms(parts, layer);
  return true;
}

void FusedDecoder::take_head_norms(const AttentionParts& parts, Layer& layer) {
  layer.q_norm = keep(parts.q_norm.weight());
  layer.k_norm = keep(parts.k_norm.weight());
  const bool has_keys = !parts.k_proj.is_empty();
  if (parts.norms_values && has_keys) layer.v_norm = keep(at::ones({layer.head_dim}));
  if (!parts.q_norm.all.is_empty()) layer.q_counted = parts.q_norm.all->counted();
  if (!parts.k_norm.all.is_empty()) layer.k_counted = parts.k_norm.all->counted();
}

bool FusedDecoder::add_feed_forward(const DecoderBlock& block, Layer& layer) {
  const FeedForwardLayer& ffn = block->feed_forward();
  const auto linears = held_.take_feed_forward<nn::PanelLinearImpl>(ffn);
  for (const Linear& linear : {linears.gate, linears.up, linears.down}) {
    if (!keep_linear(linear)) return false;
    inputs_.add_wants(quant::PanelInputs::Wants::of(linear->weight));
  }
  layer.gate = quant::PanelView(linears.gate->weight);
  layer.up = quant::PanelView(linears.up->weight);
  layer.down = quant::PanelView(linears.down->weight);
  layer.gate_bias = keep(linears.gate->bias);
  layer.up_bias = keep(linears.up->bias);
  layer.down_bias = keep(ffn->down_proj()->bias);
  layer.ffn = linears.gate->out_features();
  return true;
}

bool FusedDecoder::add_experts(const DecoderBlock& block, Layer& layer) {
  layer.experts = FusedExperts::take(block->experts(), held_);
  if (!layer.experts) return false;
  if (block->beside().are_used()) {
    const BesideParts& beside = block->beside();
    layer.plain_after = keep(beside.plain_after->whole_weight());
    layer.experts_before = keep(beside.experts_before->whole_weight());
    layer.experts_after = keep(beside.experts_after->whole_weight());
    layer.router_norm = keep(beside.router_weight());
    layer.experts->routes_apart = true;
  }
  experts_.add_wants(*layer.experts);
  return std::ranges::all_of(layer.experts->linears,
                             [this](const Linear& linear) { return keep_linear(linear); });
}

bool FusedDecoder::add_input(const InputParts& input, Layer& layer) {
  const Linear gate = held_.take_partial<nn::PanelLinearImpl>(input.gate);
  const Linear out = held_.take_partial<nn::PanelLinearImpl>(input.out);
  for (const Linear& linear : {gate, out}) {
    if (!keep_linear(linear)) return false;
    inputs_.add_wants(quant::PanelInputs::Wants::of(linear->weight));
  }
  layer.input_gate = quant::PanelView(gate->weight);
  layer.input_out = quant::PanelView(out->weight);
  layer.input_norm = keep(input.norm->whole_weight());
  return true;
}

// The parameter itself if it is float32 already.
FusedDecoder::Vector FusedDecoder::keep(const at::Tensor& parameter) {
  if (!parameter.defined()) return {};
  const at::Tensor& kept = kept_.emplace_back(parameter.detach().to(at::kFloat).contiguous());
  return {kept.const_data_ptr<float>(), kept.numel()};
}

FusedDecoder::Norms FusedDecoder::keep(const LayerNorms& norms) {
  const auto weight = [](const nn::RMSNorm& norm) {
    return norm.is_empty() ? at::Tensor() : norm->whole_weight();
  };
  return {keep(weight(norms.before)), keep(weight(norms.after))};
}

// False if it isn't in panels, or wants codes of other bits than those before.
bool FusedDecoder::keep_linear(const Linear& linear) {
  if (linear == nullptr) return false;
  const int64_t bits = quant::PanelInputs::Wants::of(linear->weight).code_bits;
  if (bits != 0 && code_bits_ != 0 && bits != code_bits_) return false;
  code_bits_ = std::max(code_bits_, bits);
  linears_.push_back(linear);
  return true;
}

}  // namespace weft::models
