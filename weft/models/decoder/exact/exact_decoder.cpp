#include "weft/models/decoder/exact/exact_decoder.h"

#include <numeric>
#include <utility>

#include "weft/core/error.h"
#include "weft/nn/attention/rotary_attention.h"
#include "weft/nn/attention/sequence_runs.h"
#include "weft/nn/layers/checkpoint.h"
#include "weft/nn/layers/swiglu.h"
#include "weft/nn/layers/token_ids.h"
#include "weft/nn/linear/dense_linear.h"
#include "weft/nn/ordered/ordered_cross_entropy.h"
#include "weft/nn/ordered/ordered_embedding.h"

namespace weft::models {
namespace {

using nn::ordered::InputSum;
using nn::ordered::SequenceOrder;

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
                                  const std::shared_ptr<const InputSum>& input,
                                  const SequenceOrder& order) {
  std::vector<at::Tensor> weights, biases;
  for (const auto& linear : linears) {
    const nn::DenseLinearImpl& dense = dense_of(*linear);
    weights.push_back(dense.weight);
    biases.push_back(dense.bias);
  }
  return nn::ordered::linears(x, weights, biases, input, order);
}

at::Tensor reduced(const at::Tensor& x, const nn::ShardedToAllLinear& linear,
                   const std::shared_ptr<dist::OrderedSum>& sum, const SequenceOrder& order) {
  const at::Tensor y = nn::ordered::reduced(x, dense_of(*linear->inner()).weight, sum, order);
  return linear->bias.defined() ? nn::ordered::with_bias(y, linear->bias, order) : y;
}

// What attention would compute in one piece has no fixed order.
void check_documents(const at::Tensor& documents_BT) {
  const bool is_known =
      !documents_BT.defined() ||
      nn::sequence_runs(documents_BT, documents_BT.size(0), documents_BT.size(1)).has_value();
  core::check<core::ConfigError>(
      is_known,
      "models: training with the same bits on any number of ranks: a "
      "document whose tokens do not lie together, expected each one's in "
      "one run; number them anew, or leave train.exact out");
}

SequenceOrder order_of(const TokenBatch& batch) {
  const int64_t sequences = batch.ids_BT.size(0);
  const bool is_needed = sequences > 1 && at::GradMode::is_enabled();
  const int64_t ordered = batch.order == nullptr ? 0 : std::ssize(batch.order->pieces);
  core::check<core::ShapeError>(
      ordered == sequences || (ordered == 0 && !is_needed),
      "models: training with the same bits on any number of ranks: ", sequences,
      " sequences and an order of ", ordered, ", expected TokenBatch::order with a piece for each");
  return ordered == 0 ? nn::ordered::without_order(sequences) : batch.order;
}

}  // namespace

ExactDecoder::ExactDecoder(PassParts parts, nn::VocabParallelEmbedding embedding,
                           nn::VocabParallelHead head, const ExactCuts& cuts)
    : parts_(std::move(parts)),
      embedding_(std::move(embedding)),
      head_(std::move(head)),
      head_cut_(head_cut(parts_.config, cuts.heads, parts_.group)),
      heads_sum_(cuts.heads.sum(parts_.group)),
      ffn_sum_(cuts.ffn.sum(parts_.group)),
      vocab_sum_(cuts.vocab.sum(parts_.group)),
      heads_input_(input_of_heads(parts_.config, head_cut_, heads_sum_)),
      ffn_input_(input_of_alike(2, ffn_sum_)),
      vocab_input_(input_of_alike(1, vocab_sum_)) {
  dense_of(*embedding_->inner());
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

at::Tensor ExactDecoder::run(const TokenBatch& batch, const PassContext& context) {
  check_documents(context.documents_BT);
  const ModelConfig& config = parts_.config;
  const Call call{context, order_of(batch)};
  last_ = {call.order, config.is_tied ? std::make_shared<nn::ordered::HeldGradient>() : nullptr};
  nn::check_token_ids(batch.ids_BT, config.vocab_size, "models.CausalLM");
  at::Tensor y_BTD =
      nn::ordered::embedded(batch.ids_BT, dense_of(*embedding_->inner()).weight,
                            {embedding_->vocab(), parts_.group}, call.order, last_.held);
  if (config.embedding_scale != 1) y_BTD = y_BTD * config.embedding_scale;
  for (size_t i = 0; i < parts_.blocks.size(); ++i) {
    auto forward = [this, block = parts_.blocks[i], call](const at::Tensor& x) mutable {
      return run_block(block, x, call);
    };
    const bool is_checkpointed = i < checkpointed_.size() && checkpointed_[i];
    y_BTD = is_checkpointed ? nn::checkpoint(forward, y_BTD) : forward(y_BTD);
  }
  return parts_.last_norm->forward_in_order(y_BTD, call.order);
}

at::Tensor ExactDecoder::loss_sum(const at::Tensor& y_BTD, const at::Tensor& targets_BT) {
  const Last last = std::exchange(last_, Last());
  core::check<core::ConfigError>(last.order != nullptr,
                                 "models: training with the same bits on any number of ranks: a "
                                 "loss without a pass before it, expected one for each");
  at::Tensor logits_BTv = nn::ordered::linears(y_BTD, {dense_of(*head_->inner()).weight}, {{}},
                                               vocab_input_, last.order, last.held)
                              .front();
  const double scale = parts_.config.logits_scale;
  if (scale != 1) logits_BTv = logits_BTv * scale;
  return nn::ordered::cross_entropy_sum(logits_BTv, targets_BT, head_->vocab(),
                                        parts_.config.vocab_size, parts_.group, vocab_sum_);
}

at::Tensor ExactDecoder::run_block(DecoderBlock& block, const at::Tensor& x_BTD,
                                   const Call& call) const {
  nn::RMSNorm attention_norm = block->attention_norms().before;
  nn::RMSNorm ffn_norm = block->ffn_norms().before;
  const at::Tensor h_BTD =
      added(x_BTD, attended(block->attention()->parts(),
                            attention_norm->forward_in_order(x_BTD, call.order), call));
  return added(h_BTD,
               fed(block->feed_forward(), ffn_norm->forward_in_order(h_BTD, call.order), call));
}

at::Tensor ExactDecoder::added(const at::Tensor& x_BTD, const at::Tensor& y_BTD) const {
  const double scale = parts_.config.residual_scale;
  return scale == 1 ? x_BTD + y_BTD : x_BTD + y_BTD * scale;
}

at::Tensor ExactDecoder::heads(const QueryKeyNorm& norm, const at::Tensor& x, bool of_kv,
                               const Call& call) const {
  const ModelConfig& config = parts_.config;
  const at::Tensor x_BTnH = x.unflatten(2, {-1, config.head_dim});
  if (norm.each.is_empty()) return x_BTnH;
  const at::Tensor weight =
      config.norm_offset == 0 ? norm.each->weight : norm.each->weight + config.norm_offset;
  return nn::ordered::normed_heads(x_BTnH, weight, config.norm_eps, head_cut_, of_kv, call.order);
}

at::Tensor ExactDecoder::attended(const AttentionParts& parts, const at::Tensor& x_BTD,
                                  const Call& call) const {
  const PassContext& context = call.context;
  const auto made =
      projected(x_BTD, {parts.q_proj->inner(), parts.k_proj->inner(), parts.v_proj->inner()},
                heads_input_, call.order);
  at::Tensor q_BTnH = heads(parts.q_norm, made[0], false, call);
  const at::Tensor& factors = context.angles.query_factors;
  if (factors.defined()) q_BTnH = q_BTnH * factors;
  const at::Tensor k_BTnH =
      nn::ordered::copied_to_heads(heads(parts.k_norm, made[1], true, call), head_cut_);
  const at::Tensor v_BTnH = nn::ordered::copied_to_heads(heads({}, made[2], true, call), head_cut_);
  nn::AttentionSpec spec = parts.spec;
  std::iota(spec.kv_of_head.begin(), spec.kv_of_head.end(), int64_t{0});
  const nn::RopeAngles angles =
      parts.has_rope ? context.angles.of(spec.window != 0) : nn::RopeAngles::none(x_BTD.size(1));
  return reduced(nn::rotary_attention(q_BTnH, k_BTnH, v_BTnH, angles, spec, context.documents_BT),
                 parts.o_proj, heads_sum_, call.order);
}

at::Tensor ExactDecoder::fed(const FeedForwardLayer& layer, const at::Tensor& x_BTD,
                             const Call& call) const {
  const auto made = projected(x_BTD, {layer->gate_proj()->inner(), layer->up_proj()->inner()},
                              ffn_input_, call.order);
  return reduced(nn::swiglu(made[0], made[1]), layer->down_proj(), ffn_sum_, call.order);
}

}  // namespace weft::models
