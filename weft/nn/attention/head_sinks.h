#pragma once

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include "weft/nn/layers/cloned.h"
#include "weft/shard/layout.h"

namespace weft::nn {

/// The sinks of attention heads that are cut over the ranks (AttentionSpec::sinks): the parameter
/// "weight". Source: gpt-oss, arXiv:2508.10925.
class HeadSinksImpl : public Cloned<HeadSinksImpl, torch::nn::Module> {
 public:
  /// weight: [n], this rank's heads' of those that `layout` (dim 0) deals out.
  HeadSinksImpl(at::Tensor weight, shard::Layout layout);
  /// What every rank holds.
  const shard::Layout& layout() const { return layout_; }
  /// As AnyLinear::exchange_members.
  void exchange_members(const MemberExchange& exchange);

  at::Tensor weight;

 private:
  shard::Layout layout_;
};
TORCH_MODULE(HeadSinks);

}  // namespace weft::nn
