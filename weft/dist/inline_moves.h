#pragma once

#include "weft/dist/group.h"

namespace weft::dist {

/// InlineCollectives that move flat tensors, too: on this thread, without the dispatcher and work
/// objects of c10d, which take some 4 µs. All tensors are contiguous and of one dtype. Collective.
class InlineMoves : public InlineCollectives {
 public:
  /// `whole` becomes the ranks' shards end to end.
  virtual void all_gather_inline(at::Tensor& whole, const at::Tensor& shard) = 0;
  /// `shard` becomes this rank's part of the sum of `whole`.
  virtual void reduce_scatter_inline(at::Tensor& shard, const at::Tensor& whole) = 0;
  /// Overwrites `x` with the root's.
  virtual void broadcast_inline(at::Tensor& x, int64_t root) = 0;
};

}  // namespace weft::dist
