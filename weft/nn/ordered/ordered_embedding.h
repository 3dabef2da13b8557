#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "weft/dist/group.h"
#include "weft/nn/ordered/ordered_linears.h"
#include "weft/shard/split.h"

namespace weft::nn::ordered {

/// Rows of a table that ranks cut by its rows, of which this one has `rows`.
struct TableCut {
  shard::Range rows;
  dist::Group group;
};

/// The table's rows of ids_BT, [B, T, D], with the same bits on any number of ranks, and the
/// gradient of `table`, this rank's rows: each sequence's tokens are added one after another,
/// sequences by `order`. A tied head's share is what `held` has when backward comes here (linears):
/// it goes first into each sequence's sum. ids_BT: int64, rows of the whole. Collective. Throws
/// ShapeError for what does not fit.
at::Tensor embedded(const at::Tensor& ids_BT, const at::Tensor& table, const TableCut& cut,
                    const SequenceOrder& order, const std::shared_ptr<HeldGradient>& held);

}  // namespace weft::nn::ordered
