#pragma once

#include <cstdint>
#include <span>

#include "weft/quant/panels/panel_matrix.h"
#include "weft/shard/sum_order.h"

namespace weft::quant {

/// Where the sums of a rank's nodes go (shard::SumPlan): row r of node i to
/// data + i * node_stride + r * row_stride, in room for whole panels.
struct NodeOutputs {
  float* data = nullptr;
  int64_t row_stride = 0;
  int64_t node_stride = 0;
};

/// One of several matrices that rows are multiplied by, which are all cut alike.
struct OrderedProduct {
  PanelView w;
  NodeOutputs y;
  /// Whose rows; row 0 of y is the first one's.
  int64_t group = 0;
};

/// y = x w^T for every product, of which the products of each of plan.pieces are summed by
/// themselves and then added as plan.steps say: the same bits for a node whichever other columns
/// this rank holds. The matrices hold the rank's columns, in pieces of whole blocks. Throws
/// ShapeError unless x is exact (PanelMatrix::is_exact), has their in_features and what they want,
/// and pieces are whole blocks.
void multiply_ordered(const kernels::PanelKernel& kernel, const PanelInputs& x,
                      std::span<const OrderedProduct> products, const shard::SumPlan& plan);

}  // namespace weft::quant
