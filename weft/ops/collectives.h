#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "weft/dist/group.h"
#include "weft/dist/parallelism.h"

namespace weft::ops {

/// Each operation is collective: every rank of `group` (if none is given, of the model group that
/// dist::init_parallelism made) calls it, in the same order, forward and backward. Storage: in a
/// group of one each returns x itself; otherwise mp_copy returns a view of x, and all others return
/// memory of their own, contiguous. x is never written to. Gradients of gradients are right too:
/// the backward pass of each is another one of them. Reductions whose gradient is not defined throw
/// ConfigError when x needs one. Source: Shoeybi et al. 2019 (arXiv:1909.08053) fig. 3; Korthikanti
/// et al. 2022 (arXiv:2205.05198) for the sequence operations.

/// Identity; the gradient is all-reduced with `op` (sum or average). Returns a view of x, or x
/// itself if that is the result of mp_copy over the same group: layers that share an input share
/// one all-reduce when it went through mp_copy before.
at::Tensor mp_copy(const at::Tensor& x, const dist::Group& group = dist::model_group(),
                   dist::ReduceOp op = dist::ReduceOp::kSum);

/// All-reduces x with `op`. The gradient passes through unchanged for a sum and divided by the
/// group's size for an average; min, max and product have no gradient here.
at::Tensor mp_reduce(const at::Tensor& x, const dist::Group& group = dist::model_group(),
                     dist::ReduceOp op = dist::ReduceOp::kSum);

/// The same over the model group.
inline at::Tensor mp_copy(const at::Tensor& x, dist::ReduceOp op) {
  return mp_copy(x, dist::model_group(), op);
}
/// The same over the model group.
inline at::Tensor mp_reduce(const at::Tensor& x, dist::ReduceOp op) {
  return mp_reduce(x, dist::model_group(), op);
}

/// This rank's shard of x along `dim`; the gradient is all-gathered. `sizes` are all ranks' lengths
/// along dim, which may differ and be 0; empty: balanced by shard::part. Throws ShapeError unless
/// there is one size per rank and they sum to x's, on all ranks alike.
at::Tensor mp_scatter(const at::Tensor& x, int64_t dim = -1,
                      const dist::Group& group = dist::model_group(),
                      const std::vector<int64_t>& sizes = {});

/// Concatenates the ranks' shards along `dim`; the gradient of this rank's shard is cut out.
/// `sizes` are all ranks' lengths along dim (they may differ); empty: exchanged first.
at::Tensor mp_gather(const at::Tensor& x, int64_t dim = -1,
                     const dist::Group& group = dist::model_group(),
                     const std::vector<int64_t>& sizes = {});

/// As mp_gather, but the gradient is reduce-scattered: for activations cut along the sequence.
at::Tensor gather_sequence(const at::Tensor& x, int64_t dim,
                           const dist::Group& group = dist::model_group(),
                           const std::vector<int64_t>& sizes = {});

/// Sums x over the ranks and returns this rank's piece along `dim`; the gradient is all-gathered.
/// `sizes` as in mp_scatter.
at::Tensor reduce_scatter_sequence(const at::Tensor& x, int64_t dim,
                                   const dist::Group& group = dist::model_group(),
                                   const std::vector<int64_t>& sizes = {});

}  // namespace weft::ops
