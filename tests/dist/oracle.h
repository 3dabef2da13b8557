#pragma once

#include <ATen/ATen.h>

#include <vector>

#include "weft/dist/group.h"

namespace weft::test {

using dist::ReduceOp;

/// What rank `rank` brings: the same on whichever rank it is asked for. Whole numbers from -4 to 4
/// for integers and when `exact`, so that no sum rounds; else normal numbers.
at::Tensor input_of(int rank, at::IntArrayRef shape, at::ScalarType dtype, bool exact);

/// The reduction of all inputs, computed here: half types in float, in rank order, rounded once.
at::Tensor reduced(const std::vector<at::Tensor>& inputs, ReduceOp op);

/// True if `result` is the reduction of `inputs`, computed in any order: sums, averages and
/// products of half types in float and rounded once, of others in their own type.
bool is_reduction(const at::Tensor& result, const std::vector<at::Tensor>& inputs, ReduceOp op);

/// All ranks' inputs.
std::vector<at::Tensor> inputs_of(int ranks, at::IntArrayRef shape, at::ScalarType dtype,
                                  bool exact);

/// The same values in memory with gaps.
at::Tensor strided_copy(const at::Tensor& x);

}  // namespace weft::test
