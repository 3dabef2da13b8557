#include "weft/models/decoder/decoder.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tanh.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "weft/core/error.h"
#include "weft/core/profile.h"
#include "weft/models/decoder/decoder_block.h"
#include "weft/models/decoder/exact/exact_decoder.h"
#include "weft/models/decoder/inputs/check_batch.h"
#include "weft/models/decoder/inputs/layer_inputs.h"
#include "weft/models/decoder/layer_parts.h"
#include "weft/models/decoder/position_angles.h"
#include "weft/models/decoder/stream_needs.h"
#include "weft/models/passes/fused_attention.h"
#include "weft/models/passes/pass_choice.h"
#include "weft/models/passes/paused_pass.h"
#include "weft/models/reads_by_layers.h"
#include "weft/models/reads_each.h"
#include "weft/models/trains_exactly.h"
#include "weft/nn/linear/fused_linear.h"
#include "weft/nn/ordered/capped.h"
#include "weft/nn/parallel/parameter_info.h"
#include "weft/nn/parallel/vocab_cross_entropy.h"
#include "weft/nn/parallel/vocab_parallel.h"
#include "weft/shard/split.h"

// Shape letters: B batch, T tokens, D width, V vocabulary.

namespace weft::models {
namespace {

// Parameters that see a rank's own tokens alone where the residual stream is cut.
constexpr const char* kOfOwnRows[] = {"input_layernorm.weight",
                                      "post_attention_layernorm.weight",
                                      "pre_feedforward_layernorm.weight",
                                      "post_self_attn_layernorm.weight",
                                      "post_mlp_layernorm.weight",
                                      "post_feedforward_layernorm.weight",
                                      "model.norm.weight",
                                      "operator_norm.weight",
                                      "ffn_norm.weight",
                                      "embedding_norm.weight",
                                      "o_proj.bias",
                                      "down_proj.bias"};

class Decoder : public CausalLM, public ReadsEach, public ReadsByLayers, public TrainsExactly {
 public:
  Decoder(const ModelConfig& config, const WeightSource& source, const Stage& stage,
          const dist::Group& group)
      : config_(config),
        stage_(stage),
        group_(group),
        is_exact_(source.is_exact()),
        angles_(config, source),
        cuts_(exact_cuts(config, source.plan())) {
    const auto body = register_module("model", std::make_shared<torch::nn::Module>());
    if (stage.is_first || (stage.is_last && config.is_tied)) {
      embedding_ = body->register_module(
          "embed_tokens",
          nn::VocabParallelEmbedding(source.linear(model_name(config, {Part::kEmbedding}), false),
                                     config.vocab_size, group));
    }
    check_stage();
    if (config.layer_inputs.is_used()) inputs_ = LayerInputs(config, source, *body, group);
    PassParts parts;
    const auto layers = body->register_module("layers", std::make_shared<torch::nn::Module>());
    for (int64_t layer = stage.layers.start; layer < stage.layers.end(); ++layer) {
      parts.blocks.push_back(layers->register_module(std::to_string(layer),
                                                     DecoderBlock(config, source, layer, group)));
    }
    if (stage.is_last) {
      parts.last_norm = body->register_module(module_name(config, {Part::kFinalNorm}),
                                              norm(config, source, {Part::kFinalNorm}));
    }
    parts.config = config;
    parts.is_whole = stage.is_first && stage.is_last;
    for (int64_t layer = 0; layer < config.num_layers; ++layer) {
      const int64_t held = held_heads(config, source, layer).kv_heads.length;
      parts.kv_heads.push_back({config.reuses_keys(layer) ? 0 : held, config.head_dim_of(layer)});
    }
    parts.group = group;
    parts.is_exact = is_exact_;
    blocks_ = parts.blocks;
    last_norm_ = parts.last_norm;
    passes_ = std::make_unique<PassChoice>(std::move(parts));
    if (!stage.is_last) return;
    const auto head = config.is_tied ? embedding_->inner()
                                     : source.linear(model_name(config, {Part::kHead}), true);
    source.check_in_order(*head,
                          model_name(config, {config.is_tied ? Part::kEmbedding : Part::kHead}));
    head_ = register_module("lm_head", nn::VocabParallelHead(head, config.vocab_size, group));
  }

  const ModelConfig& config() const override { return config_; }
  const dist::Group& group() const override { return group_; }

  at::Tensor forward(const at::Tensor& ids_BT, nn::KvCache* cache) override {
    PassContext context = context_of(ids_BT, cache);
    const core::Profiled profiled("embedding, rest");
    const nn::PlaceScope scope(context.place);
    const at::Tensor x_BTD = embed(ids_BT, context);
    const at::Tensor y_BTD = passes_->best_for(cache).run(x_BTD, context);
    if (cache != nullptr) cache->advance(ids_BT.size(1));
    return y_BTD;
  }

  bool reads_by_layers(const nn::KvCache& cache) override {
    return dynamic_cast<PassByBlocks*>(&passes_->best_for(&cache)) != nullptr;
  }

  std::unique_ptr<LayeredRead> begin_read(const at::Tensor& ids_BT, nn::KvCache& cache) override {
    auto* const pass = dynamic_cast<PassByBlocks*>(&passes_->best_for(&cache));
    core::check<core::ConfigError>(pass != nullptr, "models.CausalLM: a pass that can't stop ",
                                   "between layers; read the tokens with forward");
    PassContext context = context_of(ids_BT, &cache);
    const nn::PlaceScope scope(context.place);
    const at::Tensor x_BTD = embed(ids_BT, context);
    return std::make_unique<PausedPass>(*pass, x_BTD, std::move(context), std::ssize(blocks_));
  }

  bool reads_each(const nn::KvCache& cache) override {
    return passes_->best_for(&cache).takes_each();
  }

  // Angles of dynamic rope follow the last of the tokens that are read together.
  int64_t most_as_alone(const nn::KvCache& cache) override {
    const bool is_dynamic = config_.rope_scaling.type == nn::RopeType::kDynamic;
    return is_dynamic ? 1 : passes_->best_for(&cache).most_as_alone();
  }

  at::Tensor read_each(const at::Tensor& ids_B, std::span<nn::KvCache* const> caches) override {
    const std::vector<int64_t> starts = positions_of(caches);
    PassContext context{
        angles_.each(starts, caches.front()->capacity()), {}, nullptr, caches, starts};
    context.num_sequences = ids_B.size(0);
    rows_.clear();
    const core::Profiled profiled("embedding, rest");
    const nn::PlaceScope scope(context.place);
    const at::Tensor x_B1D = embed(ids_B.unsqueeze(1), context);
    const at::Tensor y_B1D = passes_->best_for(caches.front()).run(x_B1D, context);
    for (nn::KvCache* cache : caches) cache->advance(1);
    return y_B1D;
  }

  at::Tensor forward(const TokenBatch& batch) override { return forward_stage(batch, {}); }

  at::Tensor forward_stage(const TokenBatch& batch, const at::Tensor& x_BTD) override {
    check_batch(batch);
    // It runs the modules, which know no order of sums.
    core::check<core::ConfigError>(
        !is_exact_,
        "models: the same bits on any number of ranks: a pass over a TokenBatch, "
        "expected one with a cache; ask for the usual sums");
    PassContext context{angles_.of(batch), batch.documents_BT, nullptr};
    if (is_training()) context.dropout = {training_.dropout, training_.dropout_seed, 0};
    context.place.step = batch.step;
    context.place.first_row = batch.first_token;
    context.stream_place = place_ = context.place;
    context.num_sequences = batch.ids_BT.size(0);
    context.kept_keys = make_kept_keys();
    rows_ = row_counts(batch.ids_BT.numel());
    context.rows = rows_;
    for (int64_t rank = 0; !rows_.empty() && rank < group_.rank(); ++rank) {
      context.stream_place.first_row += rows_[static_cast<size_t>(rank)];
    }
    const nn::PlaceScope scope(context.place);
    if (exact_) return exact_->run(batch, context);
    return passes_->modules().run(x_BTD.defined() ? x_BTD : embed(batch.ids_BT, context), context);
  }

  at::Tensor make_stage_input(const TokenBatch& batch) const override {
    const auto options = blocks_.front()->parameters().front().options().requires_grad(false);
    const nn::RowCounts rows = row_counts(batch.ids_BT.numel());
    if (rows.empty()) {
      return at::empty({batch.ids_BT.size(0), batch.ids_BT.size(1), config_.width}, options);
    }
    return at::empty({rows[static_cast<size_t>(group_.rank())], config_.width}, options);
  }

  at::Tensor logits(const at::Tensor& x_BTD) override {
    check_has(stage_.is_last, "head");
    return head_->gather(head(x_BTD));
  }

  std::vector<nn::Largest> likeliest(const at::Tensor& x_BTD, int64_t count) override {
    check_has(stage_.is_last, "head");
    const at::Tensor logits_BTv = head(x_BTD);
    const core::Profiled profiled("draw, broadcast");
    return head_->likeliest(logits_BTv, count);
  }

  std::vector<nn::Largest> drawn(const at::Tensor& x_BTD,
                                 std::span<const nn::GumbelDraw> draws) override {
    check_has(stage_.is_last, "head");
    const at::Tensor logits_BTv = head(x_BTD);
    const core::Profiled profiled("draw, broadcast");
    return head_->drawn(logits_BTv, draws);
  }

  at::Tensor token_losses(const at::Tensor& x_BTD, const at::Tensor& targets_BT) override {
    return losses(x_BTD, targets_BT, nn::Reduction::kNone);
  }

  at::Tensor loss_sum(const at::Tensor& x_BTD, const at::Tensor& targets_BT) override {
    if (exact_) return exact_->loss_sum(x_BTD, targets_BT);
    return losses(x_BTD, targets_BT, nn::Reduction::kSum);
  }

  std::vector<std::shared_ptr<torch::nn::Module>> blocks() const override {
    std::vector<std::shared_ptr<torch::nn::Module>> blocks;
    for (const DecoderBlock& block : blocks_) blocks.push_back(block.ptr());
    return blocks;
  }

  void set_training(const TrainingOptions& options) override {
    core::check<core::ConfigError>(options.dropout >= 0 && options.dropout < 1,
                                   "models.CausalLM: dropout ", options.dropout,
                                   ", expected 0 or more, below 1");
    const char* const whole = needs_whole_stream(config_);
    core::check<core::ConfigError>(!options.sequence_parallel || whole == nullptr,
                                   "models.CausalLM: sequence parallelism: ", config_.family,
                                   " with ", whole == nullptr ? "" : whole,
                                   ", expected a model without");
    const bool is_checkpointed =
        std::ranges::find(options.checkpointed, true) != options.checkpointed.end();
    core::check<core::ConfigError>(!is_checkpointed || !has_more_than_stream(config_),
                                   "models.CausalLM: activation checkpointing: ", config_.family,
                                   " with ",
                                   has_more_than_stream(config_) ? needs_whole_stream(config_) : "",
                                   ", expected a model without");
    training_ = options;
    passes_->modules().set_checkpointing(options.checkpointed);
    if (exact_) exact_->set_checkpointing(options.checkpointed);
  }

  void train_exactly() override {
    check_trains_exactly(config_, group_.size());
    check_has(stage_.is_first && stage_.is_last, "training with the same bits");
    PassParts parts{config_, blocks_, last_norm_};
    parts.group = group_;
    exact_ = std::make_unique<ExactDecoder>(std::move(parts), embedding_, head_, cuts_.value());
    exact_->set_checkpointing(training_.checkpointed);
  }

  std::vector<std::string> partial_parameters() const override {
    std::vector<std::string> names;
    if (!cuts_rows()) return names;
    for (const nn::ParameterInfo& info : nn::describe_parameters(*this)) {
      const auto is_end = [&](const char* end) { return info.name.ends_with(end); };
      if (std::ranges::any_of(kOfOwnRows, is_end)) names.push_back(info.name);
    }
    return names;
  }

  void set_cache_dtype(std::optional<at::ScalarType> dtype) override {
    core::check<core::ConfigError>(
        !dtype || FusedAttention::reads_cache_of(*dtype), "models.CausalLM: a cache of ",
        c10::toString(dtype.value_or(at::kFloat)), ", expected Float, Half or Char");
    cache_dtype_ = dtype;
  }

  nn::KvCache make_cache(int64_t batch, int64_t capacity) const override {
    return passes_->best().make_cache({batch, capacity, cache_dtype_});
  }

  bool has_cache_of_positions() const override { return config_.recurrent.layers.empty(); }
  int64_t weight_bytes() const override { return nn::held_bytes(*this); }

 private:
  void check_has(bool has, const char* what) const {
    core::check<core::ConfigError>(has, "models.CausalLM: ", what, ": the stage of layers ",
                                   stage_.layers.start, " to ", stage_.layers.end(), " of ",
                                   config_.num_layers, " has none");
  }

  void check_stage() const {
    const bool is_whole = stage_.is_first && stage_.is_last;
    core::check<core::ConfigError>(is_whole || !has_more_than_stream(config_),
                                   "models.CausalLM: stages of a pipeline: ", config_.family,
                                   " with ",
                                   has_more_than_stream(config_) ? needs_whole_stream(config_) : "",
                                   ", expected a model without");
  }

  std::shared_ptr<KeptKeys> make_kept_keys() const {
    return config_.reusing.count > 0 ? std::make_shared<KeptKeys>() : nullptr;
  }

  // Of tokens behind a cache, or of a whole text.
  PassContext context_of(const at::Tensor& ids_BT, nn::KvCache* cache) {
    const int64_t start = cache == nullptr ? 0 : cache->length();
    const int64_t tokens = ids_BT.size(1);
    const int64_t most = cache == nullptr ? tokens : cache->capacity();
    PassContext context{angles_.near(start, tokens, most), {}, cache};
    context.num_sequences = ids_BT.size(0);
    if (cache == nullptr) context.kept_keys = make_kept_keys();
    rows_.clear();
    return context;
  }

  // Makes layers' own inputs as well.
  at::Tensor embed(const at::Tensor& ids_BT, PassContext& context) {
    check_has(stage_.is_first, "embedding");
    at::Tensor x_BTD = context.rows.empty() ? embedding_->forward(ids_BT)
                                            : embedding_->forward_rows(ids_BT, context.rows);
    if (config_.embedding_scale != 1) x_BTD = x_BTD * config_.embedding_scale;
    if (inputs_.are_used()) context.layer_inputs_BTLP = inputs_.forward(ids_BT, x_BTD);
    return nn::dropped(x_BTD, context.dropout, context.stream_place);
  }

  bool cuts_rows() const { return training_.sequence_parallel && group_.size() > 1; }

  // All ranks' shares of so many tokens; none if each has all.
  nn::RowCounts row_counts(int64_t num_tokens) const {
    nn::RowCounts rows;
    for (int64_t rank = 0; cuts_rows() && rank < group_.size(); ++rank) {
      rows.push_back(shard::part(num_tokens, group_.size(), rank).length);
    }
    return rows;
  }

  // This rank's logits of all tokens; x is what the last pass has returned.
  at::Tensor head(const at::Tensor& x_BTD) {
    const core::Profiled profiled("head");
    at::Tensor logits_BTv =
        rows_.empty() ? head_->forward(x_BTD)
                      : nn::linears_of_shared({head_->inner()}, x_BTD, group_, rows_).front();
    if (config_.logits_scale != 1) {
      logits_BTv = at::GradMode::is_enabled() ? logits_BTv * config_.logits_scale
                                              : logits_BTv.mul_(config_.logits_scale);
    }
    if (config_.logits_cap == 0) return logits_BTv;
    if (is_exact_) {
      return nn::ordered::capped(logits_BTv, static_cast<float>(config_.logits_cap));
    }
    return at::GradMode::is_enabled()
               ? at::tanh(logits_BTv / config_.logits_cap) * config_.logits_cap
               : logits_BTv.div_(config_.logits_cap).tanh_().mul_(config_.logits_cap);
  }

  at::Tensor losses(const at::Tensor& x_BTD, const at::Tensor& targets_BT,
                    nn::Reduction reduction) {
    check_has(stage_.is_last, "head");
    const nn::PlaceScope scope(place_);
    nn::CrossEntropyOptions options;
    options.reduction = reduction;
    options.overwrites_logits = true;
    // Rows of a cut stream are tokens of all sequences, one after the other.
    const at::Tensor wanted = rows_.empty() ? targets_BT : targets_BT.flatten();
    const at::Tensor logits = head(x_BTD);
    // Of whole contiguous rows on every rank, sums over the vocabulary have one order.
    const at::Tensor costs =
        is_exact_ ? nn::vocab_parallel_cross_entropy(head_->gather(logits).contiguous(), wanted,
                                                     {0, config_.vocab_size}, config_.vocab_size,
                                                     dist::Group(), options)
                  : nn::vocab_parallel_cross_entropy(logits, wanted, head_->vocab(),
                                                     config_.vocab_size, group_, options);
    return reduction == nn::Reduction::kNone ? costs.view_as(targets_BT) : costs;
  }

  ModelConfig config_;
  Stage stage_;
  dist::Group group_;
  /// As WeightSource::is_exact.
  bool is_exact_;
  PositionAngles angles_;
  // None where exact training does not know the model; what trains so once it does.
  std::optional<ExactCuts> cuts_;
  std::unique_ptr<ExactDecoder> exact_;
  nn::VocabParallelEmbedding embedding_{nullptr};
  LayerInputs inputs_;
  std::vector<DecoderBlock> blocks_;
  nn::RMSNorm last_norm_{nullptr};
  std::unique_ptr<PassChoice> passes_;
  nn::VocabParallelHead head_{nullptr};
  TrainingOptions training_;
  std::optional<at::ScalarType> cache_dtype_;
  // Of the last batch: the head's place, if it drops, and rows.
  nn::ActivationPlace place_;
  nn::RowCounts rows_;
};

}  // namespace

std::shared_ptr<CausalLM> make_decoder(const ModelConfig& config, const WeightSource& source,
                                       const Stage& stage, const dist::Group& group) {
  return std::make_shared<Decoder>(config, source, stage, group);
}

}  // namespace weft::models
