#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace weft::dist {

class Group;

/// Sums that are added to a tensor of each rank, in one step where the ranks share memory: every
/// rank writes its summands where the others read them. Made where it is needed, at no cost.
class SharedSum {
 public:
  /// `group` must outlive it.
  explicit SharedSum(const Group& group) : group_(group) {}

  /// Room for `count` summands, [count], which the other ranks read in the group's next collective;
  /// that must be add with them. Null where the ranks share no memory, or less. Not collective.
  float* room(int64_t count) const;
  /// x += the ranks' sum of `own`, [x.numel()], which may be overwritten; it is what room gave, or
  /// memory of the caller's. The same bits as all_reduce's result added to x. Collective. Throws
  /// ShapeError unless x is a contiguous float32 tensor on the CPU, CommError as all collectives.
  void add(at::Tensor& x, float* own) const;

 private:
  const Group& group_;
};

}  // namespace weft::dist
