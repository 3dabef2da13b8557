#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "weft/dist/group.h"

namespace weft::ops {

/// Each operation is collective: every rank of `group` calls it, in the same order, forward and
/// backward. In a group of one each returns x itself. Unless said otherwise the result shares no
/// memory with x. Reductions whose gradient is not defined throw ConfigError when x needs one.
/// Source: Shoeybi et al. 2019 (arXiv:1909.08053) fig. 3; Korthikanti et al. 2022
/// (arXiv:2205.05198) for the sequence operations.

/// Identity; the gradient is all-reduced with `op` (sum or average). Returns a view of x, or x
/// itself if that is the result of mp_copy over the same group: layers that share an input share
/// one all-reduce when it went through mp_copy before.
at::Tensor mp_copy(const at::Tensor& x, const dist::Group& group,
                   dist::ReduceOp op = dist::ReduceOp::kSum);

/// All-reduces x with `op`. The gradient passes through unchanged for a sum and divided by the
/// group's size for an average; min, max and product have no gradient here.
at::Tensor mp_reduce(const at::Tensor& x, const dist::Group& group,
                     dist::ReduceOp op = dist::ReduceOp::kSum);

/// This rank's balanced shard of x along `dim`; the gradient is all-gathered.
at::Tensor mp_scatter(const at::Tensor& x, int64_t dim, const dist::Group& group);

/// Concatenates the ranks' shards along `dim`; the gradient of this rank's shard is cut out.
/// `sizes` are all ranks' lengths along dim (they may differ); empty: exchanged first.
at::Tensor mp_gather(const at::Tensor& x, int64_t dim, const dist::Group& group,
                     const std::vector<int64_t>& sizes = {});

/// As mp_gather, but the gradient is reduce-scattered: for activations cut along the sequence.
at::Tensor gather_sequence(const at::Tensor& x, int64_t dim, const dist::Group& group,
                           const std::vector<int64_t>& sizes = {});

/// Sums x over the ranks and returns this rank's balanced piece along `dim`; the gradient is
/// all-gathered.
at::Tensor reduce_scatter_sequence(const at::Tensor& x, int64_t dim, const dist::Group& group);

}  // namespace weft::ops
