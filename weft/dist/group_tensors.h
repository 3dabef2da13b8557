#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "weft/dist/backends/capabilities.h"
#include "weft/dist/reduce_op.h"

// What Group does to tensors that a backend cannot take as they are.
namespace weft::dist {

/// Types of 16 bits, which most backends would round at each step of a sum.
inline bool is_half(at::ScalarType type) { return type == at::kHalf || type == at::kBFloat16; }

/// c10d's name for `op`; sum for an average, which Group divides itself.
c10d::ReduceOp::RedOpType to_c10d(ReduceOp op);

/// `x`, with zeros after its rows to make `length`.
at::Tensor pad_to(const at::Tensor& x, int64_t length);

/// The type in which a backend of these capabilities is to reduce elements of `type`: that type, or
/// a wider one that it reduces as Group promises. Throws ShapeError if there is none.
at::ScalarType type_to_reduce_in(at::ScalarType type, ReduceOp op, const Capabilities& can);

/// A type of the same size that a backend of these capabilities moves, where it does not move
/// `type`. Throws ShapeError if there is none.
std::optional<at::ScalarType> type_to_move_as(at::ScalarType type, const Capabilities& can);

}  // namespace weft::dist
