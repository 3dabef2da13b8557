#pragma once

#include <ATen/ATen.h>

#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/ops/tensor_checks.h"
#include "weft/models/decoder/decoder_names.h"
#include "weft/models/model.h"
#include "weft/nn/parallel/parameter_info.h"

namespace weft::models {

/// A decoder by its formulas, in float64 of whole weights.
class Formulas {
 public:
  explicit Formulas(const CausalLM& model) : config_(model.config()) {
    for (const auto& info : nn::describe_parameters(model)) {
      weights_[info.name] = test::leaf(info.tensor.detach().to(at::kDouble));
    }
    for (const auto& buffer : model.named_buffers()) {
      if (buffer.key().ends_with(".layer_scalar")) {
        weights_[buffer.key() + ".weight"] = buffer.value().to(at::kDouble);
      }
    }
  }

  at::Tensor logits(const at::Tensor& ids_BT) const {
    at::Tensor x = at::embedding(weight({Part::kEmbedding}), ids_BT) * config_.embedding_scale;
    for (int64_t layer = 0; layer < config_.num_layers; ++layer) {
      x = x +
          add(x, {{Part::kInputNorm, layer}, {Part::kAttentionOutNorm, layer}}, [&](const auto& y) {
            if (!config_.is_recurrent(layer)) return attend(y, layer);
            return config_.recurrent.kind == RecurrentKind::kGatedDelta ? remember(y, layer)
                                                                        : convolve(y, layer);
          });
      x = x + add(x, {{Part::kFfnNorm, layer}, {Part::kFfnOutNorm, layer}},
                  [&](const auto& y) { return feed(y, layer); });
      if (config_.scales_layers) x = x * weight({Part::kLayerFactor, layer});
    }
    const at::Tensor normed = norm(x, {Part::kFinalNorm});
    const at::Tensor head = weight({config_.is_tied ? Part::kEmbedding : Part::kHead});
    return capped(at::matmul(normed, head.t()) * config_.logits_scale, config_.logits_cap);
  }

  at::Tensor losses(const at::Tensor& ids_BT, const at::Tensor& targets_BT) const {
    const at::Tensor log_p = at::log_softmax(logits(ids_BT), -1);
    return -log_p.gather(-1, targets_BT.unsqueeze(-1)).squeeze(-1);
  }

  const at::Tensor& at(const std::string& name) const { return weights_.at(name); }

 private:
  using Layer = std::function<at::Tensor(const at::Tensor&)>;

  const at::Tensor& weight(const PartPlace& place) const {
    return weights_.at(model_name(config_, place) + ".weight");
  }

  at::Tensor linear(const at::Tensor& x, const PartPlace& place) const {
    const auto bias = weights_.find(model_name(config_, place) + ".bias");
    const at::Tensor y = at::matmul(x, weight(place).t());
    return bias == weights_.end() ? y : y + bias->second;
  }

  at::Tensor norm(const at::Tensor& x, const PartPlace& place) const {
    return x * (weight(place) + config_.norm_offset) /
           at::sqrt((x * x).mean(-1, true) + config_.norm_eps);
  }

  static at::Tensor capped(const at::Tensor& x, double cap) {
    return cap == 0 ? x : cap * at::tanh(x / cap);
  }

  struct Norms {
    PartPlace before, after;
  };

  at::Tensor add(const at::Tensor& x, const Norms& norms, const Layer& layer) const {
    const NormPlacement placement = config_.norm_placement;
    at::Tensor y = layer(placement == NormPlacement::kAfter ? x : norm(x, norms.before));
    if (placement != NormPlacement::kBefore) y = norm(y, norms.after);
    return y * config_.residual_scale;
  }

  at::Tensor feed(const at::Tensor& x, int64_t layer) const {
    const at::Tensor gate = linear(x, {Part::kGate, layer}), up = linear(x, {Part::kUp, layer});
    return linear(gated(gate, up), {Part::kDown, layer});
  }

  at::Tensor gated(const at::Tensor& gate, const at::Tensor& up) const {
    const double limit = config_.gating.limit;
    switch (config_.gating.activation) {
      case nn::Activation::kSilu:
        return gate * gate.sigmoid() * up;
      case nn::Activation::kGeluTanh: {
        const at::Tensor cube = gate + 0.044715 * gate.pow(3);
        return 0.5 * gate * (1 + at::tanh(std::sqrt(2 / M_PI) * cube)) * up;
      }
      case nn::Activation::kClamped: {
        const at::Tensor g = gate.clamp_max(limit);
        return g * at::sigmoid(1.702 * g) * (up.clamp(-limit, limit) + 1);
      }
    }
    return {};
  }

  at::Tensor turned(const at::Tensor& x_BnTH, int64_t layer) const {
    for (const int64_t each : config_.layers_without_rope) {
      if (each == layer) return x_BnTH;
    }
    const int64_t head_dim = config_.head_dim_of(layer);
    const int64_t dim = config_.rope_dims == 0 ? head_dim : config_.rope_dims;
    const int64_t half = dim / 2;
    const at::Tensor exponents = at::arange(half, at::kDouble) * (-2.0 / static_cast<double>(dim));
    const at::Tensor positions = at::arange(x_BnTH.size(2), at::kDouble).unsqueeze(-1);
    const bool is_other = config_.window_rope_base != 0 && config_.window(layer) != 0;
    const double base = is_other ? config_.window_rope_base : config_.rope_base;
    at::Tensor frequencies = at::pow(base, exponents);
    if (!is_other && config_.rope_scaling.type == nn::RopeType::kProportional) {
      const double part = config_.rope_scaling.turned_part;
      const auto num_turned = static_cast<int64_t>(part * static_cast<double>(half));
      frequencies = frequencies * (at::arange(half) < num_turned);
    }
    const at::Tensor angles = positions * frequencies;
    if (config_.turns_neighbours) {
      const at::Tensor pairs = x_BnTH.narrow(-1, 0, dim).unflatten(-1, {half, 2});
      const at::Tensor a = pairs.select(-1, 0), b = pairs.select(-1, 1);
      const at::Tensor both =
          at::stack({a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()}, -1);
      return at::cat({both.flatten(-2), x_BnTH.narrow(-1, dim, head_dim - dim)}, -1);
    }
    const at::Tensor a = x_BnTH.narrow(-1, 0, half), b = x_BnTH.narrow(-1, half, half);
    return at::cat({a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin(),
                    x_BnTH.narrow(-1, dim, head_dim - dim)},
                   -1);
  }

  // [B, heads, T, H] with a kv head for each query head.
  at::Tensor heads(const at::Tensor& x_BTf, int64_t layer) const {
    const int64_t head_dim = config_.head_dim_of(layer), count = x_BTf.size(-1) / head_dim;
    return x_BTf.unflatten(-1, {count, head_dim})
        .transpose(1, 2)
        .repeat_interleave(config_.num_heads / count, 1);
  }

  at::Tensor convolved(const at::Tensor& x_BTc, int64_t layer) const {
    const at::Tensor taps = weight({Part::kConvolution, layer});
    const at::Tensor padded = at::pad(x_BTc.transpose(1, 2), {taps.size(2) - 1, 0});
    return at::conv1d(padded, taps, {}, at::IntArrayRef{1}, at::IntArrayRef{0}, at::IntArrayRef{1},
                      padded.size(1))
        .transpose(1, 2);
  }

  at::Tensor convolve(const at::Tensor& x, int64_t layer) const {
    const auto parts = linear(x, {Part::kConvolutionIn, layer}).chunk(3, -1);
    return linear(parts[1] * convolved(parts[0] * parts[2], layer), {Part::kConvolutionOut, layer});
  }

  // A gated delta net, all heads of one token after the other.
  at::Tensor remember(const at::Tensor& x, int64_t layer) const {
    const nn::DeltaHeads& sizes = config_.recurrent.heads;
    const at::Tensor mixed = at::silu(convolved(linear(x, {Part::kDeltaChannels, layer}), layer));
    const int64_t k = sizes.key_features(), each = sizes.num_value_heads / sizes.num_key_heads;
    const auto unit = [&](int64_t start) {
      const at::Tensor y = mixed.narrow(-1, start, k).unflatten(-1, {-1, sizes.key_dim});
      return (y / (y.square().sum(-1, true) + 1e-6).sqrt()).repeat_interleave(each, 2);
    };
    const at::Tensor q = unit(0) / std::sqrt(static_cast<double>(sizes.key_dim)), keys = unit(k);
    const at::Tensor values =
        mixed.narrow(-1, 2 * k, sizes.value_features()).unflatten(-1, {-1, sizes.value_dim});
    const at::Tensor rates = linear(x, {Part::kDeltaRate, layer}).sigmoid();
    const at::Tensor steps =
        at::softplus(linear(x, {Part::kDeltaDecay, layer}) + weight({Part::kDeltaStepBias, layer}));
    const at::Tensor kept = (-weight({Part::kDeltaDecayLog, layer}).exp() * steps).exp();
    at::Tensor state = at::zeros({1}, at::kDouble);
    std::vector<at::Tensor> outputs;
    for (int64_t t = 0; t < x.size(1); ++t) {
      const auto of = [&](const at::Tensor& y) { return y.select(1, t).unsqueeze(-1); };
      state = state * of(kept).unsqueeze(-1);
      const at::Tensor missed = values.select(1, t) - (state * of(keys)).sum(2);
      state = state + of(keys) * (missed * of(rates)).unsqueeze(2);
      outputs.push_back((state * of(q)).sum(2));
    }
    const at::Tensor out = at::stack(outputs, 1);
    const at::Tensor normed = out * weight({Part::kDeltaNorm, layer}) /
                              at::sqrt((out * out).mean(-1, true) + config_.norm_eps);
    return linear(normed.flatten(2) * at::silu(linear(x, {Part::kDeltaGate, layer})),
                  {Part::kDeltaOut, layer});
  }

  // Values of all kv heads, of which a layer may have no projection.
  at::Tensor values(const at::Tensor& x, int64_t layer) const {
    const bool are_keys = config_.has_full_heads(layer) && config_.full_layers.keys_are_values;
    const at::Tensor v = linear(x, {are_keys ? Part::kKey : Part::kValue, layer});
    if (!config_.norms_values) return v;
    const at::Tensor each = v.unflatten(-1, {-1, config_.head_dim_of(layer)});
    return (each / at::sqrt((each * each).mean(-1, true) + config_.norm_eps)).flatten(-2);
  }

  at::Tensor attend(const at::Tensor& x, int64_t layer) const {
    const int64_t head_dim = config_.head_dim_of(layer);
    at::Tensor q = linear(x, {Part::kQuery, layer}), k = linear(x, {Part::kKey, layer});
    at::Tensor gates = at::ones({1}, at::kDouble);
    if (config_.gates_attention) {
      const auto both = q.unflatten(-1, {config_.num_heads, 2, config_.head_dim}).unbind(3);
      q = both[0].flatten(2);
      gates = both[1].flatten(2).sigmoid();
    }
    if (config_.head_norms == HeadNorms::kAllHeads) {
      q = norm(q, {Part::kQueryNorm, layer});
      k = norm(k, {Part::kKeyNorm, layer});
    }
    if (config_.head_norms == HeadNorms::kEachHead) {
      const auto each = [&](const at::Tensor& y, Part part) {
        return norm(y.unflatten(-1, {-1, head_dim}), {part, layer}).flatten(-2);
      };
      q = each(q, Part::kQueryNorm);
      k = each(k, Part::kKeyNorm);
    }
    if (config_.query_growth != 0) {
      const at::Tensor times = (at::arange(x.size(1)) / 3).floor().to(at::kDouble).unsqueeze(-1);
      q = q * (1 + config_.query_growth * at::log1p(times));
    }
    const double own_scale = 1 / std::sqrt(static_cast<double>(head_dim));
    const double scale = config_.attention_scale == 0 ? own_scale : config_.attention_scale;
    const at::Tensor products =
        at::matmul(turned(heads(q, layer), layer), turned(heads(k, layer), layer).transpose(2, 3));
    const at::Tensor scores = capped(products * scale, config_.score_cap);
    const at::Tensor row = at::arange(x.size(1)).unsqueeze(1), column = row.t();
    at::Tensor is_hidden = column > row;
    const int64_t window = config_.window(layer);
    if (window > 0) is_hidden = is_hidden.logical_or(column <= row - window);
    at::Tensor seen = scores.masked_fill(is_hidden, -INFINITY);
    if (config_.has_sinks) {
      const at::Tensor sinks = weight({Part::kSinks, layer}).view({1, -1, 1, 1});
      seen = at::cat({seen, sinks.expand({seen.size(0), -1, seen.size(2), 1})}, -1);
    }
    const at::Tensor p = seen.softmax(-1).narrow(-1, 0, x.size(1));
    const at::Tensor v = heads(values(x, layer), layer);
    return linear(at::matmul(p, v).transpose(1, 2).flatten(2) * gates, {Part::kOutput, layer});
  }

  ModelConfig config_;
  std::map<std::string, at::Tensor> weights_;
};

}  // namespace weft::models
