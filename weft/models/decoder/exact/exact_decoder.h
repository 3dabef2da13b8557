#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "weft/models/decoder/exact/exact_cuts.h"
#include "weft/models/passes/pass.h"
#include "weft/nn/parallel/vocab_parallel.h"

namespace weft::models {

/// A plain decoder's forward, loss and their gradients with the same bits on any number of ranks
/// (TrainsExactly), over the modules' own parameters. Shape letters: T tokens, D width.
class ExactDecoder {
 public:
  /// `parts` are those of a decoder with all of its layers. Throws ConfigError, naming the weight,
  /// for linears that are not dense float32.
  ExactDecoder(PassParts parts, nn::VocabParallelHead head, const ExactCuts& cuts);

  /// Blocks that are computed again in backward.
  void set_checkpointing(std::vector<bool> checkpointed) {
    checkpointed_ = std::move(checkpointed);
  }
  /// x_1TD: the embeddings of one sequence. Returns hidden states after the last norm. Collective.
  at::Tensor run(const at::Tensor& x_1TD, const PassContext& context);
  /// Of such states: nn::ordered::cross_entropy_sum. Collective.
  at::Tensor loss_sum(const at::Tensor& y_1TD, const at::Tensor& targets_1T);

 private:
  at::Tensor run_block(DecoderBlock& block, const at::Tensor& x_1TD,
                       const PassContext& context) const;
  at::Tensor attended(const AttentionParts& parts, const at::Tensor& x_1TD,
                      const PassContext& context) const;
  at::Tensor heads(const QueryKeyNorm& norm, const at::Tensor& x, bool of_kv) const;
  at::Tensor fed(const FeedForwardLayer& layer, const at::Tensor& x_1TD) const;
  at::Tensor added(const at::Tensor& x_1TD, const at::Tensor& y_1TD) const;

  PassParts parts_;
  nn::VocabParallelHead head_;
  nn::ordered::HeadCut head_cut_;
  std::shared_ptr<dist::OrderedSum> heads_sum_, ffn_sum_, vocab_sum_;
  std::shared_ptr<const nn::ordered::InputSum> heads_input_, ffn_input_, vocab_input_;
  std::vector<bool> checkpointed_;
};

}  // namespace weft::models
