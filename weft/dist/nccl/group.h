#pragma once

#include "weft/dist/backends/backends.h"

namespace weft::dist {

/// Adds libtorch's own NCCL backend for CUDA tensors to `handles`' group, which is for CPU tensors;
/// this process uses the device of its local rank. Collective over the group.
GroupHandles add_nccl(const GroupRequest& request, GroupHandles handles);

/// Why the ranks cannot use it: fewer CUDA devices than ranks on this host. Empty if they can.
std::string why_no_nccl(const RankInfo& info);

}  // namespace weft::dist
