// What a fused pass takes out of the modules.
#include <ATen/ops/ones.h>

#include <algorithm>
#include <array>
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
      norms_over_ranks_(parts.config.head_norms == HeadNorms::kAllHeads &&
                        (parts.group.size() > 1 || parts.is_exact)),
      residual_scale_(static_cast<float>(parts.config.residual_scale)),
      group_(parts.group),
      latent_(parts.is_exact),
      is_exact_(parts.is_exact),
      whole_q_(static_cast<float>(parts.config.num_heads * parts.config.head_dim)),
      whole_k_(static_cast<float>(parts.config.num_kv_heads * parts.config.head_dim)) {
  cache_options_.dtype = at::kHalf;
  last_norm_ = keep(parts.last_norm->whole_weight());
  is_complete_ =
      std::ranges::all_of(parts.blocks, [this](const auto& block) { return add(block); });
  if (is_exact_ && low_rank_.has_adapters()) is_complete_ = false;
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

// One that runs as a module reads keys and values as they are kept, as float32 fastest. It computes
// exactly what its linears compute exactly.
bool FusedDecoder::add_mixer(const DecoderBlock& block, Layer& layer) {
  TokenMixerImpl& mixer = block.ptr()->mixer();
  auto* const delta = dynamic_cast<GatedDeltaLayerImpl*>(&mixer);
  if (delta != nullptr && add_delta(*delta, layer)) return true;
  if (delta != nullptr && is_exact_) return false;
  auto* const latent = dynamic_cast<LatentAttentionLayerImpl*>(&mixer);
  if (latent != nullptr && add_latent(*latent, layer)) return true;
  layer.mixer = &mixer;
  if (mixer.state_sizes().empty()) cache_options_.dtype = at::kFloat;
  return !is_exact_ || std::ranges::all_of(nn::find_linears(mixer), [](const nn::HeldLinear& each) {
    const auto inner = std::dynamic_pointer_cast<nn::PanelLinearImpl>(each.holder->inner());
    return inner != nullptr && inner->weight.is_exact;
  });
}

bool FusedDecoder::add_delta(GatedDeltaLayerImpl& mixer, Layer& layer) {
  auto taken = FusedDelta::take(mixer, held_);
  if (!taken || !keep_linears(taken->linears)) return false;
  add_wants(taken->linears);
  layer.delta = std::move(taken);
  layer.o_sum = mixer.parts().output->ordered();
  return true;
}

bool FusedDecoder::add_latent(LatentAttentionLayerImpl& mixer, Layer& layer) {
  auto taken = latent_.take(mixer, held_);
  if (!taken) return false;
  std::vector<Linear> all = taken->linears;
  all.push_back(taken->key_value_linear);
  const auto rounds = [](const Linear& linear) { return !linear->weight.is_exact; };
  if (is_exact_ && std::ranges::any_of(all, rounds)) return false;
  if (!keep_linears(all)) return false;
  // Keys and values are made of the latents' own inputs.
  add_wants(taken->linears);
  latent_.add_wants(*taken);
  layer.latent = std::move(taken);
  layer.o_sum = mixer.parts().output->ordered();
  return true;
}

bool FusedDecoder::add_attention(const DecoderBlock& block, Layer& layer) {
  layer.head_dim = kv_heads_[layers_.size()].head_dim;
  const auto held = held_.take_attention<nn::LinearLike>(block);
  Adapters& adapters = layer.adapters;
  const AttentionPanels linears = {panels_of(held.q, adapters.q), panels_of(held.k, adapters.k),
                                   panels_of(held.v, adapters.v), panels_of(held.o, adapters.o)};
  const AttentionParts& parts = block->attention()->parts();
  std::vector<Linear> own = {linears.q};
  if (!parts.k_proj.is_empty()) own.push_back(linears.k);
  if (!parts.v_proj.is_empty()) own.push_back(linears.v);
  layer.num_projections = own.size();
  own.push_back(linears.o);
  if (!keep_linears(own)) return false;
  add_wants(own);
  const FusedAttention::Options options = {is_exact_, linears.q->weight.activation_bits == 8};
  layer.kernel = &attentions_.try_emplace(layer.head_dim, layer.head_dim, options).first->second;
  layer.q = quant::PanelView(linears.q->weight);
  // Of those that there are not the views are of the ones before: they are multiplied by none.
  layer.k = linears.k == nullptr ? layer.q : quant::PanelView(linears.k->weight);
  layer.v = linears.v == nullptr ? layer.k : quant::PanelView(linears.v->weight);
  layer.o = quant::PanelView(linears.o->weight);
  layer.o_sum = parts.o_proj->ordered();
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

// The heads of a norm that count here; the whole's lie behind `first` others.
std::vector<FusedDecoder::CountedHead> FusedDecoder::counted_heads(const nn::ShardedRMSNorm& norm,
                                                                   int64_t head_dim,
                                                                   int64_t first) const {
  std::vector<CountedHead> heads;
  int64_t start = 0;
  for (const shard::Range& range : norm->layout()->of(group_.rank())) {
    for (int64_t at = 0; at < range.length; at += head_dim, start += head_dim) {
      const auto has_it = [&](const shard::Range& run) {
        return run.start <= start && start < run.end();
      };
      if (std::ranges::none_of(norm->counted(), has_it)) continue;
      heads.push_back({start, first + (range.start + at) / head_dim});
    }
  }
  return heads;
}

void FusedDecoder::take_head_norms(const AttentionParts& parts, Layer& layer) {
  layer.q_norm = keep(parts.q_norm.weight());
  layer.k_norm = keep(parts.k_norm.weight());
  const bool has_keys = !parts.k_proj.is_empty();
  if (parts.norms_values && has_keys) layer.v_norm = keep(at::ones({layer.head_dim}));
  if (!parts.q_norm.all.is_empty()) layer.q_counted = parts.q_norm.all->counted();
  if (!parts.k_norm.all.is_empty()) layer.k_counted = parts.k_norm.all->counted();
  if (!norms_over_ranks_ || !is_exact_) return;
  layer.q_heads = counted_heads(parts.q_norm.all, layer.head_dim, 0);
  layer.k_heads = counted_heads(parts.k_norm.all, layer.head_dim,
                                parts.q_norm.all->layout()->size / layer.head_dim);
}

bool FusedDecoder::add_feed_forward(const DecoderBlock& block, Layer& layer) {
  const FeedForwardLayer& ffn = block->feed_forward();
  const auto held = held_.take_feed_forward<nn::LinearLike>(ffn);
  Adapters& adapters = layer.adapters;
  const FeedForwardPanels linears = {panels_of(held.gate, adapters.gate),
                                     panels_of(held.up, adapters.up),
                                     panels_of(held.down, adapters.down)};
  const std::array own = {linears.gate, linears.up, linears.down};
  if (!keep_linears(own)) return false;
  add_wants(own);
  layer.gate = quant::PanelView(linears.gate->weight);
  layer.up = quant::PanelView(linears.up->weight);
  layer.down = quant::PanelView(linears.down->weight);
  layer.down_sum = ffn->down_proj()->ordered();
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
  return keep_linears(layer.experts->linears);
}

bool FusedDecoder::add_input(const InputParts& input, Layer& layer) {
  const Linear gate = held_.take_partial<nn::PanelLinearImpl>(input.gate);
  const Linear out = held_.take_partial<nn::PanelLinearImpl>(input.out);
  const std::array own = {gate, out};
  if (!keep_linears(own)) return false;
  add_wants(own);
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

// The linear itself, or what adapters stand beside; null if that isn't in panels.
FusedDecoder::Linear FusedDecoder::panels_of(const std::shared_ptr<nn::LinearLike>& linear,
                                             const nn::AdaptedLinearImpl*& adapters) {
  adapters = low_rank_.keep(linear);
  return std::dynamic_pointer_cast<nn::PanelLinearImpl>(adapters != nullptr ? adapters->base()
                                                                            : linear);
}

// All of them; none, and false, if one isn't in panels or wants codes of other bits than the rest.
bool FusedDecoder::keep_linears(std::span<const Linear> linears) {
  int64_t all_bits = code_bits_;
  for (const Linear& linear : linears) {
    if (linear == nullptr) return false;
    const int64_t bits = quant::PanelInputs::Wants::of(linear->weight).code_bits;
    if (bits != 0 && all_bits != 0 && bits != all_bits) return false;
    all_bits = std::max(all_bits, bits);
  }
  code_bits_ = all_bits;
  linears_.insert(linears_.end(), linears.begin(), linears.end());
  return true;
}

// What these read is among inputs_.
void FusedDecoder::add_wants(std::span<const Linear> linears) {
  for (const Linear& linear : linears) {
    inputs_.add_wants(quant::PanelInputs::Wants::of(linear->weight));
  }
}

}  // namespace weft::models
