#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <memory>

#include "weft/dist/group.h"
#include "weft/nn/linear_like.h"
#include "weft/shard/split.h"

namespace weft::nn {

/// An embedding whose vocabulary rows are cut over the ranks: each looks up the tokens that it
/// holds, gives zeros for the others, and the sum over ranks is the embedding. Source: Shoeybi et
/// al. 2019, arXiv:1909.08053, section 3.
class VocabParallelEmbeddingImpl : public torch::nn::Module {
 public:
  /// `inner` holds rows `vocab` of the whole table [V, D].
  VocabParallelEmbeddingImpl(std::shared_ptr<LinearLike> inner, shard::Range vocab,
                             dist::Group group);

  /// ids_BT: int64, equal on all ranks, each below V. Returns x_BTD. Collective.
  at::Tensor forward(const at::Tensor& ids_BT);

  const std::shared_ptr<LinearLike>& inner() const { return inner_; }

 private:
  std::shared_ptr<LinearLike> inner_;
  shard::Range vocab_;
  dist::Group group_;
};
TORCH_MODULE(VocabParallelEmbedding);

/// The output head cut by vocabulary rows; `inner` may be the embedding's own (tied).
class VocabParallelHeadImpl : public torch::nn::Module {
 public:
  /// `inner` holds rows `vocab` of the whole head [V, D]; `vocab_size` is V.
  VocabParallelHeadImpl(std::shared_ptr<LinearLike> inner, shard::Range vocab, int64_t vocab_size,
                        dist::Group group);

  /// x_BTD: whole. Returns this rank's logits_BTv. Collective in backward.
  at::Tensor forward(const at::Tensor& x_BTD);
  /// Joins the ranks' logits_BTv to logits_BTV on every rank. Collective.
  at::Tensor gather(const at::Tensor& logits_BTv);

  const std::shared_ptr<LinearLike>& inner() const { return inner_; }
  const shard::Range& vocab() const { return vocab_; }

 private:
  std::shared_ptr<LinearLike> inner_;
  shard::Range vocab_;
  dist::Group group_;
  std::vector<int64_t> sizes_;
};
TORCH_MODULE(VocabParallelHead);

}  // namespace weft::nn
