#pragma once

#include <memory>
#include <optional>

#include "weft/dist/group.h"
#include "weft/dist/ordered_sum.h"
#include "weft/models/config/config.h"
#include "weft/models/load/plan.h"
#include "weft/nn/ordered/ordered_heads.h"
#include "weft/nn/ordered/ordered_linears.h"
#include "weft/shard/layout.h"
#include "weft/shard/sum_order.h"

namespace weft::models {

/// A dim that ranks share, and the order of sums over it.
struct ExactCut {
  shard::SumOrder order;
  shard::Layout layout;

  /// This rank's part of the sums.
  std::shared_ptr<dist::OrderedSum> sum(const dist::Group& group) const;
};

/// The dims over which a plain decoder's training sums.
struct ExactCuts {
  ExactCut heads, ffn, vocab;
};

/// Those of a model's plan; none if exact training does not know the model.
std::optional<ExactCuts> exact_cuts(const ModelConfig& config, const LoadPlan& plan);

/// How ranks share the heads.
nn::ordered::HeadCut head_cut(const ModelConfig& config, const ExactCut& heads,
                              const dist::Group& group);

/// How the gradient of the input is summed, of q, k and v (in this order): keys and values belong
/// to the piece of the first query head that reads them.
std::shared_ptr<const nn::ordered::InputSum> input_of_heads(const ModelConfig& config,
                                                            const nn::ordered::HeadCut& cut,
                                                            std::shared_ptr<dist::OrderedSum> sum);
/// The same of `count` linears that are cut alike.
std::shared_ptr<const nn::ordered::InputSum> input_of_alike(size_t count,
                                                            std::shared_ptr<dist::OrderedSum> sum);

}  // namespace weft::models
