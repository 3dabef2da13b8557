#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "weft/dist/group.h"
#include "weft/nn/linear/linear_like.h"

namespace weft::nn {

/// How many rows (tokens) of an activation [rows, ...] each rank of a group holds; empty: every
/// rank holds all of them.
using RowCounts = std::vector<int64_t>;

/// Column parallel linears that share their input: each linear's forward(ops::mp_copy(x, group)).
/// Dense ones take one pass whose backward sums the inputs' gradients in place and reduces them
/// over the group there, without copies. x: [..., in], whole. Returns an output per linear.
/// Collective over `group` in backward, one all-reduce.
/// With `rows`, x is this rank's rows [r, in], and the outputs are of all rows: each linear's
/// forward(ops::gather_sequence(x, 0, group, rows)). Dense ones keep this rank's rows alone and
/// gather them again in backward. Collective: a gather forward, a gather and a reduce-scatter
/// backward. Source: Korthikanti et al. 2022, arXiv:2205.05198, section 4.2.
std::vector<at::Tensor> linears_of_shared(const std::vector<std::shared_ptr<LinearLike>>& linears,
                                          const at::Tensor& x, const dist::Group& group,
                                          const RowCounts& rows = {});

/// A row parallel linear: ops::mp_reduce(linear.forward(x), group). A dense one reduces its output
/// in place. x: [..., this rank's in]. Collective over `group`, one all-reduce.
/// With `rows`, x has all rows [rows, this rank's in], and of the sum this rank gets its own:
/// ops::reduce_scatter_sequence(linear.forward(x), 0, group, rows). Collective: a reduce-scatter
/// forward, a gather backward.
at::Tensor reduced_linear(LinearLike& linear, const at::Tensor& x, const dist::Group& group,
                          const RowCounts& rows = {});

}  // namespace weft::nn
