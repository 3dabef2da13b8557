#include "weft/dist/shared_sum.h"

#include <ATen/ATen.h>

#include "weft/core/error.h"
#include "weft/dist/backends/group_handles.h"
#include "weft/dist/group.h"
#include "weft/dist/group_calls.h"
#include "weft/dist/group_monitor.h"

namespace weft::dist {

// What compares the ranks' calls talks through the group itself.
float* SharedSum::room(int64_t count) const {
  InlineCollectives* const collectives = group_.handles_->inline_collectives.get();
  if (collectives == nullptr || group_.checker_ != nullptr) return nullptr;
  return collectives->sum_room(count);
}

void SharedSum::add(at::Tensor& x, float* own) const {
  const CallNumber number(group_.monitor_.get());
  core::check<core::ShapeError>(
      x.is_contiguous() && x.scalar_type() == at::kFloat && x.is_cpu(),
      "dist.SharedSum.add: expected a contiguous float32 tensor on the CPU, got ", tensor_text(x));
  InlineCollectives* const collectives = group_.handles_->inline_collectives.get();
  if (collectives != nullptr && group_.checker_ == nullptr) {
    const bool is_added = group_.run_operation(OpKind::kAllReduce,
                                               [&] { return collectives->add_sum_inline(x, own); });
    if (is_added) return group_.traffic_->all_reduce.add(x.nbytes());
  }
  at::Tensor sum = at::from_blob(own, x.sizes(), at::kFloat);
  group_.all_reduce(sum);
  x.add_(sum);
}

}  // namespace weft::dist
