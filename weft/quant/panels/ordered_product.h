#pragma once

#include <cstdint>

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

/// y = x w^T, of which the products of each of plan.pieces are summed by themselves and then added
/// as plan.steps say: the same bits for a node whichever other columns this rank holds. w holds the
/// rank's columns, in pieces of whole blocks; x one group of rows. Throws ShapeError unless x is
/// exact (PanelMatrix::is_exact), has w's in_features and what w wants, and pieces are whole
/// blocks of w.
void multiply_ordered(const kernels::PanelKernel& kernel, const PanelInputs& x, const PanelView& w,
                      const shard::SumPlan& plan, const NodeOutputs& y);

}  // namespace weft::quant
