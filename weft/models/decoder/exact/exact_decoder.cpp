#include "weft/models/decoder/exact/exact_decoder.h"

#include <numeric>
#include <utility>

#include "weft/core/error.h"
#include "weft/nn/attention/rotary_attention.h"
#include "weft/nn/layers/checkpoint.h"
#include "weft/nn/layers/swiglu.h"
#include "weft/nn/linear/dense_linear.h"
#include "weft/nn/ordered/ordered_cross_entropy.h"

namespace weft::models {
namespace {

using nn::ordered::InputSum;

const nn::DenseLinearImpl& dense_of(const nn::LinearLike& linear) {
  const auto* dense = dynamic_cast<const nn::DenseLinearImpl*>(&linear);
  core::check<core::ConfigError>(
      dense != nullptr && dense->weight.scalar_type() == at::kFloat && dense->weight.is_cpu(),
      "models: training with the same bits on any number of ranks: a ", linear.name(),
      ", expected dense weights in float32 on the CPU; leave train.exact out");
  return *dense;
}

std::vector<at::Tensor> projected(const at::Tensor& x,
                                  const std::vector<std::shared_ptr<nn::LinearLike>>& linears,
                                  const std::shared_ptr<const InputSum>& input) {
  std::vector<at::Tensor> weights, biases;
  for (const auto& linear : linears) {
    const nn::DenseLinearImpl& dense = dense_of(*linear);
    weights.push_back(dense.weight);
    biases.push_back(dense.bias);
  }
  return nn::ordered::linears(x, weights, biases, input);
}

at::Tensor reduced(const at::Tensor& x, const nn::ShardedToAllLinear& linear,
                   const std::shared_ptr<dist::OrderedSum>& sum) {
  const at::Tensor y = nn::ordered::reduced(x, dense_of(*linear->inner()).weight, sum);
  return linear->bias.defined() ? nn::ordered::with_bias(y, linear->bias) : y;
}

}  // namespace

ExactDecoder::ExactDecoder(PassParts parts, nn::VocabParallelHead head, const ExactCuts& cuts)
    : parts_(std::move(parts)),
      head_(std::move(head)),
      head_cut_(head_cut(parts_.config, cuts.heads, parts_.group)),
      heads_sum_(cuts.heads.sum(parts_.group)),
      ffn_sum_(cuts.ffn.sum(parts_.group)),
      vocab_sum_(cuts.vocab.sum(parts_.group)),
      heads_input_(input_of_heads(parts_.config, head_cut_, heads_sum_)),
      ffn_input_(input_of_alike(2, ffn_sum_)),
      vocab_input_(input_of_alike(1, vocab_sum_)) {
  dense_of(*head_->inner());
  for (const DecoderBlock& block : parts_.blocks) {
    const AttentionParts& attention = block->attention()->parts();
    for (const auto& linear :
         {attention.q_proj, attention.k_proj, attention.v_proj, block->feed_forward()->gate_proj(),
          block->feed_forward()->up_proj()}) {
      dense_of(*linear->inner());
    }
    dense_of(*attention.o_proj->inner());
    dense_of(*block->feed_forward()->down_proj()->inner());
  }
}

at::Tensor ExactDecoder::run(const at::Tensor& x_1TD, const PassContext& context) {
  core::check<core::ShapeError>(x_1TD.size(0) == 1,
                                "models: training with the same bits: ", x_1TD.size(0),
                                " sequences at once, expected 1");
  // A zero's sign is lost where others add their zeros.
  at::Tensor y_1TD = x_1TD + 0.0;
  for (size_t i = 0; i < parts_.blocks.size(); ++i) {
    auto forward = [this, block = parts_.blocks[i], context](const at::Tensor& x) mutable {
      return run_block(block, x, context);
    };
    const bool is_checkpointed = i < checkpointed_.size() && checkpointed_[i];
    y_1TD = is_checkpointed ? nn::checkpoint(forward, y_1TD) : forward(y_1TD);
  }
  return parts_.last_norm->forward(y_1TD);
}

at::Tensor ExactDecoder::loss_sum(const at::Tensor& y_1TD, const at::Tensor& targets_1T) {
  at::Tensor logits_Tv = projected(y_1TD.flatten(0, 1), {head_->inner()}, vocab_input_).front();
  const double scale = parts_.config.logits_scale;
  if (scale != 1) logits_Tv = logits_Tv * scale;
  return nn::ordered::cross_entropy_sum(logits_Tv, targets_1T.flatten(), head_->vocab(),
                                        parts_.config.vocab_size, parts_.group, vocab_sum_);
}

at::Tensor ExactDecoder::run_block(DecoderBlock& block, const at::Tensor& x_1TD,
                                   const PassContext& context) const {
  nn::RMSNorm attention_norm = block->attention_norms().before;
  nn::RMSNorm ffn_norm = block->ffn_norms().before;
  const at::Tensor h_1TD =
      added(x_1TD, attended(block->attention()->parts(), attention_norm->forward(x_1TD), context));
  return added(h_1TD, fed(block->feed_forward(), ffn_norm->forward(h_1TD)));
}

at::Tensor ExactDecoder::added(const at::Tensor& x_1TD, const at::Tensor& y_1TD) const {
  const double scale = parts_.config.residual_scale;
  return scale == 1 ? x_1TD + y_1TD : x_1TD + y_1TD * scale;
}

at::Tensor ExactDecoder::heads(const QueryKeyNorm& norm, const at::Tensor& x, bool of_kv) const {
  const ModelConfig& config = parts_.config;
  const at::Tensor x_1TnH = x.unflatten(2, {-1, config.head_dim});
  if (norm.each.is_empty()) return x_1TnH;
  const at::Tensor weight =
      config.norm_offset == 0 ? norm.each->weight : norm.each->weight + config.norm_offset;
  return nn::ordered::normed_heads(x_1TnH, weight, config.norm_eps, head_cut_, of_kv);
}

at::Tensor ExactDecoder::attended(const AttentionParts& parts, const at::Tensor& x_1TD,
                                  const PassContext& context) const {
  const auto made = projected(
      x_1TD, {parts.q_proj->inner(), parts.k_proj->inner(), parts.v_proj->inner()}, heads_input_);
  at::Tensor q_1TnH = heads(parts.q_norm, made[0], false);
  const at::Tensor& factors = context.angles.query_factors;
  if (factors.defined()) q_1TnH = q_1TnH * factors;
  const at::Tensor k_1TnH =
      nn::ordered::copied_to_heads(heads(parts.k_norm, made[1], true), head_cut_);
  const at::Tensor v_1TnH = nn::ordered::copied_to_heads(heads({}, made[2], true), head_cut_);
  nn::AttentionSpec spec = parts.spec;
  std::iota(spec.kv_of_head.begin(), spec.kv_of_head.end(), int64_t{0});
  const nn::RopeAngles angles =
      parts.has_rope ? context.angles.of(spec.window != 0) : nn::RopeAngles::none(x_1TD.size(1));
  return reduced(nn::rotary_attention(q_1TnH, k_1TnH, v_1TnH, angles, spec, context.documents_BT),
                 parts.o_proj, heads_sum_);
}

at::Tensor ExactDecoder::fed(const FeedForwardLayer& layer, const at::Tensor& x_1TD) const {
  const auto made =
      projected(x_1TD, {layer->gate_proj()->inner(), layer->up_proj()->inner()}, ffn_input_);
  return reduced(nn::swiglu(made[0], made[1]), layer->down_proj(), ffn_sum_);
}

}  // namespace weft::models
