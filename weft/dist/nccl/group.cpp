#include "weft/dist/nccl/group.h"

#include <c10/cuda/CUDAFunctions.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "weft/core/error.h"

namespace weft::dist {

std::string why_no_nccl(const RankInfo& info) {
  const int devices = c10::cuda::device_count();
  if (devices >= info.local_size) return "";
  return core::join("it needs a CUDA device for each rank of a host, and ", info.local_size,
                    " ranks see ", devices);
}

GroupHandles add_nccl(const GroupRequest& request, GroupHandles handles) {
  c10::cuda::set_device(static_cast<c10::DeviceIndex>(request.info.local_rank));
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = request.monitor->timeout();
  auto backend = c10::make_intrusive<c10d::ProcessGroupNCCL>(request.store, request.rank,
                                                             request.size, options);
  handles.process_group->setBackend(c10::DeviceType::CUDA, c10d::ProcessGroup::BackendType::NCCL,
                                    backend);
  handles.cuda.unequal_pieces = true;
  handles.cuda.reduce_scatter = true;
  handles.cuda.reduces = {at::kChar, at::kByte,     at::kBool,  at::kInt,   at::kLong,
                          at::kHalf, at::kBFloat16, at::kFloat, at::kDouble};
  handles.cuda.moves = handles.cuda.reduces;
  return handles;
}

}  // namespace weft::dist
