#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weft/dist/group.h"
#include "weft/models/config/config.h"
#include "weft/nn/attention/kv_cache.h"
#include "weft/nn/logits/gumbel.h"
#include "weft/nn/logits/largest.h"
#include "weft/shard/sum_order.h"

namespace weft::models {

/// Sequences to train on or to score, equal on all ranks of a model's group.
struct TokenBatch {
  /// int64 [B, T].
  at::Tensor ids_BT;
  /// int64: numbers of the documents that a row is packed of; attention stays within a document.
  /// Undefined: each row is one.
  at::Tensor documents_BT = {};
  /// int64: where each token stands for rope, e.g. in its document. Undefined: in its row.
  at::Tensor positions_BT = {};
  /// For dropout: the step that the rows belong to, and the place of their first token among the
  /// step's, over all ranks; the others follow it.
  uint64_t step = 0;
  int64_t first_token = 0;
  /// With TrainsExactly: how the rows' gradients are added, a piece for each, one node. May be null
  /// for one row, and where gradients are not recorded.
  std::shared_ptr<const shard::SumPlan> order = nullptr;
};

/// How a model is trained; what is left out is off.
struct TrainingOptions {
  /// Activation checkpointing (nn::checkpoint) of the blocks for which it is true; a list shorter
  /// than the blocks leaves the last ones as they are. Takes effect where gradients are recorded.
  std::vector<bool> checkpointed = {};
  /// In training mode, elements of the embedding and of what attention and feed-forward layers add
  /// to the residual stream are dropped at this rate (nn::dropped), 0 or more and below 1: drawn by
  /// seed, layer, TokenBatch::step and token, whatever ranks there are.
  double dropout = 0;
  uint64_t dropout_seed = 0;
  /// forward(TokenBatch) cuts the tokens of norms and the residual stream over the model's group,
  /// as evenly as can be. What it returns is this rank's rows of [B * T, D], for loss_sum,
  /// token_losses and logits (then [B * T, V]). Nothing in a group of one. Not for models with
  /// experts. Source: Korthikanti et al. 2022, arXiv:2205.05198.
  bool sequence_parallel = false;
};

/// A decoder-only transformer cut over a group of ranks. Every rank calls every method together.
/// Its parameters have Hugging Face's names (nn::describe_parameters).
class CausalLM : public torch::nn::Module {
 public:
  virtual const ModelConfig& config() const = 0;
  virtual const dist::Group& group() const = 0;

  /// ids_BT: int64, equal on all ranks. The tokens follow those in `cache`, which stores them as
  /// well; without a cache they are the whole text. Returns hidden states x_BTD after the last
  /// norm.
  virtual at::Tensor forward(const at::Tensor& ids_BT, nn::KvCache* cache) = 0;
  /// The same without a cache, for rows that may be packed of several documents. Throws ShapeError
  /// for documents or positions of another shape or type.
  virtual at::Tensor forward(const TokenBatch& batch) = 0;
  /// The same of a stage's layers alone: x_BTD are the hidden states that the stage before gave for
  /// the batch, undefined on the first. Returns what the next stage takes, on the last stage hidden
  /// states after the last norm. What needs embedding or head throws ConfigError on the others.
  virtual at::Tensor forward_stage(const TokenBatch& batch, const at::Tensor& x_BTD) = 0;
  /// A tensor without values of the shape and type that forward_stage takes for a batch.
  virtual at::Tensor make_stage_input(const TokenBatch& batch) const = 0;
  /// x_BTD: hidden states. Returns logits_BTV, whole, on every rank.
  virtual at::Tensor logits(const at::Tensor& x_BTD) = 0;
  /// The `count` likeliest next tokens after each of x_BTD, hidden states, and their logits, as
  /// nn::largest gives them: B * T lists, equal on all ranks. Moves two numbers for each, where
  /// logits move all.
  virtual std::vector<nn::Largest> likeliest(const at::Tensor& x_BTD, int64_t count) = 0;
  /// The token that each of `draws` takes after each of x_BTD, hidden states, and the sum by which
  /// it was drawn, as nn::largest_gumbel_sum gives them: B * T of them, as many as draws, equal on
  /// all ranks. Moves two numbers for each.
  virtual std::vector<nn::Largest> drawn(const at::Tensor& x_BTD,
                                         std::span<const nn::GumbelDraw> draws) = 0;
  /// The loss of the tokens that follow x_BTD, hidden states: -ln p of targets_BT (int64, equal on
  /// all ranks), float32 [B, T] on every rank; 0 for the target -100, which counts for nothing. No
  /// rank makes logits outside of its vocabulary's part.
  virtual at::Tensor token_losses(const at::Tensor& x_BTD, const at::Tensor& targets_BT) = 0;
  /// Their sum, float32: to be divided by the number of tokens that count in the whole step.
  virtual at::Tensor loss_sum(const at::Tensor& x_BTD, const at::Tensor& targets_BT) = 0;

  /// The stage's layers in their order: the units that a trainer shards, each with all parameters
  /// of its layer; below, blocks are numbered as here. What remains is embedding, last norm and
  /// head.
  virtual std::vector<std::shared_ptr<torch::nn::Module>> blocks() const = 0;
  /// From now on, in place of what was set before. Throws ConfigError for a rate that is none, for
  /// sequence parallelism of a model with experts, and for activation checkpointing of one whose
  /// layers read more than what the layer before them gives.
  virtual void set_training(const TrainingOptions& options) = 0;
  /// Names of the trainable parameters whose gradients are this rank's part of a sum over
  /// group(): norms, and biases that are added to a rank's own tokens.
  virtual std::vector<std::string> partial_parameters() const = 0;

  /// The type of keys and values in caches that are made from now on: float32, float16, or int8 for
  /// 8 bits with scales, whose heads have a multiple of 32 numbers; none: float16 where a pass runs
  /// on fused kernels that read it, else float32, which is all that a GPU has. Throws ConfigError
  /// for others.
  virtual void set_cache_dtype(std::optional<at::ScalarType> dtype) = 0;
  /// A cache for `capacity` positions of `batch` sequences, with this rank's kv heads.
  virtual nn::KvCache make_cache(int64_t batch, int64_t capacity) const = 0;
  /// Whether what a cache keeps of some positions can be forgotten and copied apart from what
  /// stands before them (KvCache::truncate, append_copy), as keys and values can. Else a cache can
  /// only be emptied: prompts share nothing.
  virtual bool has_cache_of_positions() const { return true; }
  /// Bytes of this rank's weights as they are held.
  virtual int64_t weight_bytes() const = 0;
};

}  // namespace weft::models
