#include <ATen/ATen.h>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "weft/core/error.h"
#include "weft/dist/backends/group_handles.h"
#include "weft/dist/group.h"
#include "weft/dist/group_calls.h"
#include "weft/dist/group_tensors.h"

// The collectives that write into memory that is there.

namespace weft::dist {
namespace {

using core::check;
using core::ShapeError;

void check_flat(const char* where, const at::Tensor& whole, const at::Tensor& shard,
                int64_t ranks) {
  check<ShapeError>(whole.is_contiguous() && shard.is_contiguous(), where,
                    ": expected contiguous tensors");
  check<ShapeError>(whole.scalar_type() == shard.scalar_type(), where,
                    ": expected tensors of one dtype, got ", whole.scalar_type(), " and ",
                    shard.scalar_type());
  check<ShapeError>(whole.numel() == shard.numel() * ranks, where, ": expected a whole of ", ranks,
                    " x ", shard.numel(), " elements, got ", whole.numel());
}

}  // namespace

PendingWork::PendingWork(c10::intrusive_ptr<c10d::Work> work, std::shared_ptr<GroupMonitor> monitor)
    : work_(std::move(work)), monitor_(std::move(monitor)) {}

PendingWork::~PendingWork() = default;

void PendingWork::wait() { wait_for(monitor_.get(), OpKind::kAllGather, work_); }

void Group::all_gather_into(at::Tensor& whole, const at::Tensor& shard) const {
  gather_into(whole, shard, /*async=*/false);
}

std::unique_ptr<PendingWork> Group::begin_all_gather_into(at::Tensor& whole,
                                                          const at::Tensor& shard) const {
  return gather_into(whole, shard, /*async=*/true);
}

std::unique_ptr<PendingWork> Group::gather_into(at::Tensor& whole, const at::Tensor& shard,
                                                bool async) const {
  const CallNumber number(monitor_.get());
  check_flat("dist.Group.all_gather_into", whole, shard, size_);
  const at::NoGradGuard no_grad;
  if (size_ == 1) {
    if (!whole.is_alias_of(shard)) whole.view({-1}).copy_(shard.view({-1}));
    return nullptr;
  }
  traffic_->all_gather.add(whole.nbytes());
  const auto describe = [&] { return call_of(OpKind::kAllGather, tensor_text(shard)); };
  return run_collective(OpKind::kAllGather, describe, [&] {
    if (handles_->inline_collectives != nullptr && !async && shard.is_cpu()) {
      handles_->inline_collectives->all_gather_inline(whole, shard);
      return std::unique_ptr<PendingWork>();
    }
    const auto type = type_to_move_as(shard.scalar_type(), capabilities(shard));
    at::Tensor output = type ? whole.view(*type) : whole;
    at::Tensor input = type ? shard.view(*type) : shard;
    c10d::AllgatherOptions options;
    options.asyncOp = async;
    auto work = process_group()->_allgather_base(output, input, options);
    if (!async) wait_for(monitor_.get(), OpKind::kAllGather, work);
    return async ? std::make_unique<PendingWork>(std::move(work), monitor_)
                 : std::unique_ptr<PendingWork>();
  });
}

void Group::reduce_scatter_into(at::Tensor& shard, const at::Tensor& whole) const {
  const CallNumber number(monitor_.get());
  constexpr const char* kWhere = "dist.Group.reduce_scatter_into";
  check_flat(kWhere, whole, shard, size_);
  check<ShapeError>(whole.scalar_type() != at::kBool, kWhere,
                    ": expected numbers for a sum, got Bool");
  const at::NoGradGuard no_grad;
  if (size_ == 1) {
    if (!whole.is_alias_of(shard)) shard.view({-1}).copy_(whole.view({-1}));
    return;
  }
  traffic_->reduce_scatter.add(whole.nbytes());
  const auto describe = [&] { return call_of(OpKind::kReduceScatter, tensor_text(whole)); };
  run_collective(OpKind::kReduceScatter, describe, [&] {
    if (!capabilities(shard).reduce_scatter) {
      at::Tensor sum = shard.view({-1});
      exchange_and_sum(sum, whole.view({-1}),
                       std::vector<int64_t>(static_cast<size_t>(size_), shard.numel()));
      return true;
    }
    if (handles_->inline_collectives != nullptr && shard.is_cpu()) {
      handles_->inline_collectives->reduce_scatter_inline(shard, whole);
      return true;
    }
    at::Tensor output = shard;
    at::Tensor input = whole;
    c10d::ReduceScatterOptions options;
    options.asyncOp = false;
    wait_for(monitor_.get(), OpKind::kReduceScatter,
             process_group()->_reduce_scatter_base(output, input, options));
    return true;
  });
}

}  // namespace weft::dist
