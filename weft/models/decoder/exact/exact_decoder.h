#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "weft/models/decoder/exact/exact_cuts.h"
#include "weft/models/model.h"
#include "weft/models/passes/pass.h"
#include "weft/nn/parallel/vocab_parallel.h"

namespace weft::models {

/// A plain decoder's forward, loss and their gradients with the same bits on any number of ranks
/// (TrainsExactly), over the modules' own parameters. Shape letters: B sequences, T tokens, D
/// width.
class ExactDecoder {
 public:
  /// `parts` are those of a decoder with all of its layers. Throws ConfigError, naming the weight,
  /// for linears that are not dense float32.
  ExactDecoder(PassParts parts, nn::VocabParallelEmbedding embedding, nn::VocabParallelHead head,
               const ExactCuts& cuts);

  /// Blocks that are computed again in backward.
  void set_checkpointing(std::vector<bool> checkpointed) {
    checkpointed_ = std::move(checkpointed);
  }
  /// Returns hidden states after the last norm. Collective. Throws ConfigError for documents that
  /// attention takes in no fixed order, ShapeError for an order of other sequences.
  at::Tensor run(const TokenBatch& batch, const PassContext& context);
  /// Of the last run's states: nn::ordered::cross_entropy_sum. Collective.
  at::Tensor loss_sum(const at::Tensor& y_BTD, const at::Tensor& targets_BT);

 private:
  // Of one run; its backward may come after other runs.
  struct Call {
    PassContext context;
    nn::ordered::SequenceOrder order;
  };
  // What its loss takes.
  struct Last {
    nn::ordered::SequenceOrder order = nullptr;
    // Where the table is the head's as well.
    std::shared_ptr<nn::ordered::HeldGradient> held = nullptr;
  };

  at::Tensor run_block(DecoderBlock& block, const at::Tensor& x_BTD, const Call& call) const;
  at::Tensor attended(const AttentionParts& parts, const at::Tensor& x_BTD, const Call& call) const;
  at::Tensor heads(const QueryKeyNorm& norm, const at::Tensor& x, bool of_kv,
                   const Call& call) const;
  at::Tensor fed(const FeedForwardLayer& layer, const at::Tensor& x_BTD, const Call& call) const;
  at::Tensor added(const at::Tensor& x_BTD, const at::Tensor& y_BTD) const;

  PassParts parts_;
  nn::VocabParallelEmbedding embedding_;
  nn::VocabParallelHead head_;
  nn::ordered::HeadCut head_cut_;
  std::shared_ptr<dist::OrderedSum> heads_sum_, ffn_sum_, vocab_sum_;
  std::shared_ptr<const nn::ordered::InputSum> heads_input_, ffn_input_, vocab_input_;
  std::vector<bool> checkpointed_;
  Last last_;
};

}  // namespace weft::models
