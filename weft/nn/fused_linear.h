#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "weft/dist/group.h"
#include "weft/nn/linear_like.h"

namespace weft::nn {

/// Column parallel linears that share their input: each linear's forward(ops::mp_copy(x, group)).
/// Dense ones take one pass whose backward sums the inputs' gradients in place and reduces them
/// over the group there, without copies. x: [..., in], whole. Returns an output per linear.
/// Collective over `group` in backward, one all-reduce.
std::vector<at::Tensor> linears_of_shared(const std::vector<std::shared_ptr<LinearLike>>& linears,
                                          const at::Tensor& x, const dist::Group& group);

/// A row parallel linear: ops::mp_reduce(linear.forward(x), group). A dense one reduces its output
/// in place. x: [..., this rank's in]. Collective over `group`, one all-reduce.
at::Tensor reduced_linear(LinearLike& linear, const at::Tensor& x, const dist::Group& group);

}  // namespace weft::nn
