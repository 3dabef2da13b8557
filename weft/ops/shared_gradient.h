#pragma once

#include <ATen/core/Tensor.h>

#include "weft/dist/group.h"
#include "weft/shard/layout.h"

namespace weft::ops {

/// mp_copy for a shard that other ranks hold parts of, too (kv heads over more ranks than kv
/// heads): identity; in the gradient, every element's is summed over the ranks that hold it, so
/// that copies stay equal in training. `x` is this rank's shard by `layout`. Returns a view of x,
/// or x itself if nothing overlaps. Collective in backward over `group`, one all-reduce of the
/// whole's size: meant for parameters, not for activations.
/// Throws ShapeError if x is not as long as the layout says.
at::Tensor sum_shared_gradient(const at::Tensor& x, const shard::Layout& layout,
                               const dist::Group& group);

}  // namespace weft::ops
