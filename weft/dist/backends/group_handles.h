#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <memory>

#include "weft/dist/backends/capabilities.h"
#include "weft/dist/reduce_op.h"

namespace c10d {
class ProcessGroup;
}

namespace weft::dist {

/// Collectives on this thread, without the dispatcher and work objects of c10d, which take some
/// 4 µs. A backend that can run them inline for CPU tensors implements them beside c10d::Backend.
/// All tensors are contiguous, and those of one call of one dtype. Collective.
class InlineCollectives {
 public:
  virtual ~InlineCollectives() = default;
  /// Reduces `x` in place over the group.
  virtual void all_reduce_inline(at::Tensor& x, ReduceOp op) = 0;
  /// `whole` becomes the ranks' shards, all of one size, end to end.
  virtual void all_gather_inline(at::Tensor& whole, const at::Tensor& shard) = 0;
  /// `shard` becomes this rank's part, all of one size, of the sum of `whole`.
  virtual void reduce_scatter_inline(at::Tensor& shard, const at::Tensor& whole) = 0;
  /// Overwrites `x` with the root's.
  virtual void broadcast_inline(at::Tensor& x, int64_t root) = 0;
  /// SharedSum::room, not collective; null if the backend has none.
  virtual float* sum_room(int64_t /*count*/) { return nullptr; }
  /// SharedSum::add; false if the backend has nothing better than all_reduce_inline.
  virtual bool add_sum_inline(at::Tensor& /*x*/, float* /*own*/) { return false; }
};

/// What a backend makes for one group. To copy or destroy it c10d/ProcessGroup.hpp must be
/// included.
struct GroupHandles {
  c10::intrusive_ptr<c10d::ProcessGroup> process_group;
  /// What it does with CPU tensors, and with those of CUDA devices where it takes them.
  Capabilities cpu = {};
  Capabilities cuda = {};
  /// For CPU tensors; none in a backend that only c10d can call.
  std::shared_ptr<InlineCollectives> inline_collectives = nullptr;
};

}  // namespace weft::dist
