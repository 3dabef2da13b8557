#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "weft/dist/group.h"

// What Group does to tensors because backends other than shm cannot take them as they are.
namespace weft::dist {

/// Types of 16 bits, which most backends would round at each step of a sum.
inline bool is_half(at::ScalarType type) { return type == at::kHalf || type == at::kBFloat16; }

/// c10d's name for `op`; sum for an average, which Group divides itself.
c10d::ReduceOp::RedOpType to_c10d(ReduceOp op);

/// `x`, with zeros after its rows to make `length`.
at::Tensor pad_to(const at::Tensor& x, int64_t length);

/// The type in which `x` is to be reduced. Gloo adds halves in half precision, and has neither
/// flags nor 16-bit integers; others divide a rounded sum for an average.
at::ScalarType type_to_reduce_in(const at::Tensor& x, ReduceOp op, bool is_gloo);

/// A type of the same size that Gloo moves, where it does not move `type`.
std::optional<at::ScalarType> type_to_move_as(at::ScalarType type, bool is_gloo);

}  // namespace weft::dist
