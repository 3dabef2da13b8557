#include "weft/nn/vocab_parallel.h"

#include <ATen/ops/clamp.h>

#include <utility>

#include "weft/core/error.h"
#include "weft/ops/collectives.h"

namespace weft::nn {

VocabParallelEmbeddingImpl::VocabParallelEmbeddingImpl(std::shared_ptr<LinearLike> inner,
                                                       shard::Range vocab, dist::Group group)
    : inner_(register_module("inner", std::move(inner))), vocab_(vocab), group_(std::move(group)) {
  core::check<core::ShapeError>(inner_->out_features() == vocab_.length,
                                "nn.VocabParallelEmbedding: table of ", inner_->out_features(),
                                " rows, expected ", vocab_.length);
}

at::Tensor VocabParallelEmbeddingImpl::forward(const at::Tensor& ids_BT) {
  if (group_.size() == 1) return inner_->rows(ids_BT);
  const at::Tensor local_BT = ids_BT - vocab_.start;
  const at::Tensor elsewhere_BT = (local_BT < 0).logical_or(local_BT >= vocab_.length);
  const at::Tensor rows_BTD = inner_->rows(local_BT.clamp(0, vocab_.length - 1));
  return ops::mp_reduce(rows_BTD.masked_fill(elsewhere_BT.unsqueeze(-1), 0), group_);
}

VocabParallelHeadImpl::VocabParallelHeadImpl(std::shared_ptr<LinearLike> inner, shard::Range vocab,
                                             int64_t vocab_size, dist::Group group)
    : inner_(register_module("inner", std::move(inner))), vocab_(vocab), group_(std::move(group)) {
  core::check<core::ShapeError>(inner_->out_features() == vocab_.length,
                                "nn.VocabParallelHead: weight of ", inner_->out_features(),
                                " rows, expected ", vocab_.length);
  for (int64_t rank = 0; rank < group_.size(); ++rank) {
    sizes_.push_back(shard::part(vocab_size, group_.size(), rank).length);
  }
}

at::Tensor VocabParallelHeadImpl::forward(const at::Tensor& x_BTD) {
  return inner_->forward(ops::mp_copy(x_BTD, group_));
}

at::Tensor VocabParallelHeadImpl::gather(const at::Tensor& logits_BTv) {
  return ops::mp_gather(logits_BTv, -1, group_, sizes_);
}

}  // namespace weft::nn
