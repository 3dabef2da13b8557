// What a fused pass computes beside attention and feed-forward layers: token mixers that are
// modules, and what Gemma 4 adds.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <array>

#include "weft/core/profile.h"
#include "weft/models/passes/fused_decoder.h"
#include "weft/nn/adapters/adapter_scope.h"

namespace weft::models {

// The residual stream, normed where there is a norm, on every rank: [B, T, D].
at::Tensor FusedDecoder::normed_stream(const Pass& pass, const Vector& weight) const {
  const RowCut& own = pass.own;
  at::Tensor all = at::empty({own.room, width_});
  auto* const normed = all.mutable_data_ptr<float>();
  for_rows(own.count, width_, [&](int64_t index) {
    const int64_t row = own.first + index;
    std::copy_n(pass.x + row * width_, width_, normed + row * width_);
    if (weight.data != nullptr) norm_in_place(weight, normed + row * width_, 1);
  });
  if (own.is_cut()) group_.all_gather_into(all, all.narrow(0, own.each * group_.rank(), own.each));
  return all.narrow(0, 0, pass.rows()).view({pass.batch, pass.tokens, width_});
}

// x += the module's sum over the ranks. Sequences with caches of their own are mixed one by one, so
// that each has the bits that it has alone.
void FusedDecoder::mix(const Pass& pass, const Layer& layer) {
  const core::Profiled profiled("token mixer");
  const at::Tensor x_BTD = normed_stream(pass, layer.attention_norms.before);
  at::Tensor mixed_BTD;
  if (pass.context->cache != nullptr) {
    mixed_BTD = layer.mixer->forward(x_BTD, *pass.context).contiguous();
  } else {
    mixed_BTD = at::empty_like(x_BTD);
    for (int64_t sequence = 0; sequence < pass.batch; ++sequence) {
      PassContext alone = *pass.context;
      alone.angles = pass.angles().of_row(sequence);
      alone.cache = pass.caches[static_cast<size_t>(sequence)];
      alone.num_sequences = 1;
      const auto numbers = nn::AdapterScope::current();
      const nn::AdapterScope scope(
          numbers.size() > 1 ? numbers.subspan(static_cast<size_t>(sequence), 1) : numbers);
      mixed_BTD.narrow(0, sequence, 1)
          .copy_(layer.mixer->forward(x_BTD.narrow(0, sequence, 1), alone));
    }
  }
  add_whole(pass, {}, layer.attention_norms.after,
            mixed_BTD.mutable_data_ptr<float>() + pass.own.first * width_);
}

// x += a gated delta net's output.
void FusedDecoder::run_delta(const Pass& pass, const Layer& layer, int64_t index) {
  const FusedDelta::Layer& own = *layer.delta;
  take_normed(pass, layer.attention_norms.before, inputs_);
  multiply("delta nets",
           std::array{product(own.channels, delta_.channels), product(own.gates, delta_.gates),
                      product(own.rates, delta_.rates), product(own.decays, delta_.decays)});
  {
    const core::Profiled profiled("delta rule");
    const float* const heads = delta_.run(own, {pass, index, norm_eps_});
    const int64_t features = own.heads.value_features();
    take(pass, features, [&](int64_t row, float* /*room*/) { return heads + row * features; });
  }
  add_product(pass, {"output", own.output, nullptr}, {}, layer.attention_norms.after, layer.o_sum);
}

// x += latent attention's output.
void FusedDecoder::run_latent(const Pass& pass, const Layer& layer, int64_t index) {
  const FusedLatent::Layer& own = *layer.latent;
  take_normed(pass, layer.attention_norms.before, inputs_);
  const bool has_latent = own.has_query_latent();
  multiply("latents", std::array{product(own.kv_latent, latent_.latents),
                                 has_latent ? product(own.query_latent, latent_.query_latents)
                                            : product(own.query, latent_.queries)});
  if (has_latent) {
    const int64_t features = own.query_norm.size(0);
    take(pass, features,
         [&](int64_t row, float* room) { return latent_.normed_query_latent(own, row, room); });
    multiply("queries", std::array{product(own.query, latent_.queries)});
  }
  const float* const heads = latent_.run(own, {pass, index, &pass.angles().all});
  const int64_t features = own.num_heads * own.heads.value_dim;
  take(pass, features, [&](int64_t row, float* /*room*/) { return heads + row * features; });
  add_product(pass, {"output", own.output, nullptr}, {}, layer.attention_norms.after, layer.o_sum);
}

// This rank's own rows of x by the layer's factor.
void FusedDecoder::scale(const Pass& pass, const Layer& layer) const {
  for_rows(pass.own.count, width_, [&](int64_t row) {
    float* const x = pass.x + (pass.own.first + row) * width_;
    for (int64_t i = 0; i < width_; ++i) x[i] *= layer.factor;
  });
}

// x += norm(out(gated(gate(x), the layer's own input))): every rank has these linears whole.
void FusedDecoder::add_input(const Pass& pass, size_t index) {
  const Layer& layer = layers_[index];
  const auto num_layers = static_cast<int64_t>(layers_.size());
  const int64_t width = pass.layer_inputs_BTLP.size(3);
  const auto* const first =
      pass.layer_inputs_BTLP.const_data_ptr<float>() + static_cast<int64_t>(index) * width;
  take_normed(pass, {}, inputs_);
  multiply("layers' inputs", std::array{product(layer.input_gate, gate_)});
  take(pass, width, [&](int64_t row, float* room) {
    gate_row(gating_, gate_.row(row), first + row * num_layers * width, room, width);
    return room;
  });
  multiply("layers' inputs", std::array{product(layer.input_out, up_)});
  for_rows(pass.own.count, width_, [&](int64_t own) {
    const int64_t row = pass.own.first + own;
    float *const y = up_.row(row), *const x = pass.x + row * width_;
    norm_in_place(layer.input_norm, y, 1);
    elements().add(x, y, x, width_);
  });
}

// x += norm(norm(feed-forward layer) + norm(experts)), each summed over the ranks.
void FusedDecoder::feed_beside(const Pass& pass, const Layer& layer) {
  take_gated(pass, layer);
  auto* const all = sum_.mutable_data_ptr<float>();
  const auto plain_sum = [&] {
    if (is_exact_) return ordered_product(pass, "down", layer.down, *layer.down_sum);
    multiply("down", std::array{quant::PanelProduct{layer.down, all, width_}});
    low_rank_.add(layer.adapters.down, all, width_);
    return sum_of_ranks(pass);
  };
  const float* sum = plain_sum();
  plain_.of(pass.own.count, width_);
  for_rows(pass.own.count, width_, [&](int64_t row) {
    float* const plain = plain_.row(row);
    std::copy_n(sum + row * width_, width_, plain);
    add_bias(layer.down_bias, plain);
    norm_in_place(layer.plain_after, plain, 1);
  });
  take_normed(pass, layer.experts_before, experts_.inputs());
  take_normed(pass, layer.router_norm, experts_.router_inputs());
  const auto sum_of_experts = [&] {
    if (is_exact_) return experts_.run_ordered(*layer.experts, pass.tokens);
    experts_.run(*layer.experts, pass.tokens, all);
    return sum_of_ranks(pass);
  };
  float* const chosen = sum_of_experts();
  for_rows(pass.own.count, width_, [&](int64_t row) {
    float *const y = chosen + row * width_, *const x = pass.x + (pass.own.first + row) * width_;
    norm_in_place(layer.experts_after, y, 1);
    elements().add(y, plain_.row(row), y, width_);
    norm_in_place(layer.ffn_norms.after, y, 1);
    for (int64_t i = 0; i < width_; ++i) x[i] += residual_scale_ * y[i];
  });
}

}  // namespace weft::models
