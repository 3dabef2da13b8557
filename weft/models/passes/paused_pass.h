#pragma once

#include <algorithm>
#include <utility>

#include "weft/models/passes/pass.h"
#include "weft/models/reads_by_layers.h"

namespace weft::models {

/// A pass of PassByBlocks::begin that goes on when it is told to.
class PausedPass : public LayeredRead {
 public:
  /// x_BTD: the tokens' embeddings. `pass` must outlive it, and so must context.cache, which is
  /// one.
  PausedPass(PassByBlocks& pass, const at::Tensor& x_BTD, PassContext context, int64_t num_blocks)
      : pass_(pass),
        context_(std::move(context)),
        rows_(pass.begin(x_BTD, context_)),
        num_blocks_(num_blocks) {}

  int64_t num_left() const override { return num_blocks_ - next_; }

  at::Tensor run(int64_t count) override {
    const shard::Range blocks{next_, std::min(count, num_left())};
    pass_.run_blocks(rows_, context_, blocks);
    next_ = blocks.end();
    if (num_left() > 0) return {};
    const at::Tensor y_BTD = pass_.finish(rows_);
    context_.cache->advance(y_BTD.size(1));
    return y_BTD;
  }

 private:
  PassByBlocks& pass_;
  PassContext context_;
  PassRows rows_;
  int64_t num_blocks_;
  int64_t next_ = 0;
};

}  // namespace weft::models
