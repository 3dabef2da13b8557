// What a fused pass takes out of the modules.
#include <algorithm>
#include <utility>

#include "weft/models/passes/fused_decoder.h"

namespace weft::models {

FusedDecoder::FusedDecoder(const PassParts& parts)
    : width_(parts.config.width),
      head_dim_(parts.config.head_dim),
      num_kv_heads_(parts.num_kv_heads),
      norm_eps_(static_cast<float>(parts.config.norm_eps)),
      gating_(parts.config.gating),
      norms_over_ranks_(parts.config.head_norms == HeadNorms::kAllHeads && parts.group.size() > 1),
      residual_scale_(static_cast<float>(parts.config.residual_scale)),
      attention_(parts.config.head_dim, parts.ordered.has_value()),
      group_(parts.group),
      whole_q_(static_cast<float>(parts.config.num_heads * head_dim_)),
      whole_k_(static_cast<float>(parts.config.num_kv_heads * head_dim_)) {
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
  if (!add_attention(block, layer)) return false;
  take_norms(block, layer);
  const bool is_added =
      block->experts().is_empty() ? add_feed_forward(block, layer) : add_experts(block, layer);
  if (is_added) layers_.push_back(std::move(layer));
  return is_added;
}

bool FusedDecoder::add_attention(const DecoderBlock& block, Layer& layer) {
  const auto linears = held_.take_attention<nn::PanelLinearImpl>(block);
  for (const Linear& linear : {linears.q, linears.k, linears.v, linears.o}) {
    if (!keep_linear(linear)) return false;
    inputs_.add_wants(quant::PanelInputs::Wants::of(linear->weight));
  }
  const AttentionParts& parts = block->attention()->parts();
  layer.q = quant::PanelView(linears.q->weight);
  layer.k = quant::PanelView(linears.k->weight);
  layer.v = quant::PanelView(linears.v->weight);
  layer.o = quant::PanelView(linears.o->weight);
  layer.q_bias = keep(linears.q->bias);
  layer.k_bias = keep(linears.k->bias);
  layer.v_bias = keep(linears.v->bias);
  layer.o_bias = keep(parts.o_proj->bias);
  layer.heads = linears.q->out_features() / head_dim_;
  layer.kv_heads = linears.k->out_features() / head_dim_;
  layer.attention = parts.spec;
  if (parts.spec.sinks.defined()) {
    layer.attention.sinks = parts.spec.sinks.detach().to(at::kFloat).contiguous();
  }
  layer.has_rope = parts.has_rope;
  return true;
}

void FusedDecoder::take_norms(const DecoderBlock& block, Layer& layer) {
  const AttentionParts& parts = block->attention()->parts();
  layer.attention_norms = keep(block->attention_norms());
  layer.ffn_norms = keep(block->ffn_norms());
  layer.q_norm = keep(parts.q_norm.weight());
  layer.k_norm = keep(parts.k_norm.weight());
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
  experts_.add_wants(*layer.experts);
  return std::ranges::all_of(layer.experts->linears,
                             [this](const Linear& linear) { return keep_linear(linear); });
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
