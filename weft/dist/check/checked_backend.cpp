#include "weft/dist/check/checked_backend.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "weft/core/error.h"
#include "weft/dist/backends/backend_work.h"

namespace weft::dist {
namespace {

using core::join;
using Tensors = CheckedBackend::Tensors;

// A rank whose own piece does not fit what it gives to all is named by this.
std::string misfit(int rank, const at::Tensor& own, const Tensors& pieces) {
  const auto index = static_cast<size_t>(rank);
  if (index < pieces.size() && pieces[index].numel() == own.numel()) return {};
  return join("; misfit of rank ", rank);
}

// One rank's piece among the pieces of all. The words are short where all are alike.
Call piece_call(OpKind kind, int rank, const at::Tensor& own, const Tensors& pieces) {
  Call call;
  call.kind = kind;
  call.text = tensor_text(own);
  call.agreed = join(dtype_text(own.scalar_type()), shapes_text(pieces), misfit(rank, own, pieces));
  const bool alike = std::all_of(pieces.begin(), pieces.end(),
                                 [&](const at::Tensor& x) { return x.sizes() == own.sizes(); });
  if (!alike) call.text += join(" of ", shapes_text(pieces));
  return call;
}

Call two_tensors(OpKind kind, const at::Tensor& input, const at::Tensor& output) {
  return call_of(kind, join(tensor_text(input), " to ", tensor_text(output)));
}

std::string from_root(int64_t root) { return join(" root ", root); }

Tensors first_of(const std::vector<Tensors>& lists) { return lists.empty() ? Tensors() : lists[0]; }

}  // namespace

CheckedBackend::CheckedBackend(c10::intrusive_ptr<c10d::Backend> backend, const Capabilities& can,
                               std::shared_ptr<CallChecker> checker)
    : Backend(backend->getRank(), backend->getSize()),
      backend_(std::move(backend)),
      compares_pieces_(can.compares_pieces),
      checker_(std::move(checker)) {}

CheckedBackend::~CheckedBackend() { checker_->queue().drain(); }

void CheckedBackend::finish(const WorkPtr& work, OpKind kind) const {
  checker_->monitor().wait(*work, kind);
}

CheckedBackend::WorkPtr CheckedBackend::run_queued(WorkQueue& queue, Tensors outputs,
                                                   std::function<void()> job) {
  auto work = c10::make_intrusive<BackendWork>(rank_, c10d::OpType::UNKNOWN, std::move(outputs));
  queue.push([work, job = std::move(job)] {
    const at::NoGradGuard no_grad;
    try {
      job();
      work->complete();
    } catch (...) {
      work->complete(std::current_exception());
    }
  });
  return work;
}

CheckedBackend::WorkPtr CheckedBackend::allreduce(Tensors& tensors,
                                                  const c10d::AllreduceOptions& options) {
  return run(
      call_of(OpKind::kAllReduce, join(tensors_text(tensors), ' ', reduce_text(options.reduceOp))),
      options, tensors,
      [this, x = tensors](const auto& o) mutable { return backend_->allreduce(x, o); });
}

CheckedBackend::WorkPtr CheckedBackend::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  return run(
      call_of(OpKind::kAllReduce, join(tensors_text(tensors), ' ', reduce_text(options.reduceOp))),
      options, tensors,
      [this, x = tensors](const auto& o) mutable { return backend_->allreduce_coalesced(x, o); });
}

CheckedBackend::WorkPtr CheckedBackend::reduce(Tensors& tensors,
                                               const c10d::ReduceOptions& options) {
  return run(
      call_of(OpKind::kReduce, join(tensors_text(tensors), ' ', reduce_text(options.reduceOp),
                                    from_root(options.rootRank))),
      options, tensors,
      [this, x = tensors](const auto& o) mutable { return backend_->reduce(x, o); });
}

CheckedBackend::WorkPtr CheckedBackend::broadcast(Tensors& tensors,
                                                  const c10d::BroadcastOptions& options) {
  return run(call_of(OpKind::kBroadcast, join(tensors_text(tensors), from_root(options.rootRank))),
             options, tensors,
             [this, x = tensors](const auto& o) mutable { return backend_->broadcast(x, o); });
}

CheckedBackend::WorkPtr CheckedBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                                  const c10d::AllgatherOptions& options) {
  const Tensors pieces = first_of(outputs);
  return run(piece_call(OpKind::kAllGather, rank_, inputs.at(0), pieces), options, pieces,
             [this, out = outputs, in = inputs](const auto& o) mutable {
               return backend_->allgather(out, in, o);
             });
}

CheckedBackend::WorkPtr CheckedBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                        const c10d::AllgatherOptions& options) {
  return run(two_tensors(OpKind::kAllGather, input, output), options, {output},
             [this, out = output, in = input](const auto& o) mutable {
               return backend_->_allgather_base(out, in, o);
             });
}

CheckedBackend::WorkPtr CheckedBackend::allgather_coalesced(std::vector<Tensors>& outputs,
                                                            Tensors& inputs,
                                                            const c10d::AllgatherOptions& options) {
  return run(call_of(OpKind::kAllGather, tensors_text(inputs)), options, inputs,
             [this, out = outputs, in = inputs](const auto& o) mutable {
               return backend_->allgather_coalesced(out, in, o);
             });
}

CheckedBackend::WorkPtr CheckedBackend::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  return run(call_of(OpKind::kAllGather, join(tensors_text(inputs), " to ", tensors_text(outputs))),
             options, outputs, [this, out = outputs, in = inputs](const auto& o) mutable {
               return backend_->allgather_into_tensor_coalesced(out, in, o);
             });
}

CheckedBackend::WorkPtr CheckedBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs,
                                               const c10d::GatherOptions& options) {
  Call call = call_of(OpKind::kGather, join(tensors_text(inputs), from_root(options.rootRank)));
  if (compares_pieces_) {
    call.agreed = join(dtype_text(inputs.at(0).scalar_type()), from_root(options.rootRank));
  }
  return run(std::move(call), options, first_of(outputs),
             [this, out = outputs, in = inputs](const auto& o) mutable {
               return backend_->gather(out, in, o);
             });
}

CheckedBackend::WorkPtr CheckedBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                                const c10d::ScatterOptions& options) {
  Call call = call_of(OpKind::kScatter, join(tensors_text(outputs), from_root(options.rootRank)));
  if (compares_pieces_) {
    call.agreed = join(dtype_text(outputs.at(0).scalar_type()), from_root(options.rootRank));
  }
  return run(std::move(call), options, outputs,
             [this, out = outputs, in = inputs](const auto& o) mutable {
               return backend_->scatter(out, in, o);
             });
}

CheckedBackend::WorkPtr CheckedBackend::reduce_scatter(Tensors& outputs,
                                                       std::vector<Tensors>& inputs,
                                                       const c10d::ReduceScatterOptions& options) {
  Call call = piece_call(OpKind::kReduceScatter, rank_, outputs.at(0), first_of(inputs));
  call.text += join(' ', reduce_text(options.reduceOp));
  call.agreed += join(' ', reduce_text(options.reduceOp));
  return run(std::move(call), options, outputs,
             [this, out = outputs, in = inputs](const auto& o) mutable {
               return backend_->reduce_scatter(out, in, o);
             });
}

CheckedBackend::WorkPtr CheckedBackend::_reduce_scatter_base(
    at::Tensor& output, at::Tensor& input, const c10d::ReduceScatterOptions& options) {
  Call call = two_tensors(OpKind::kReduceScatter, input, output);
  call = call_of(call.kind, join(call.text, ' ', reduce_text(options.reduceOp)));
  return run(std::move(call), options, {output},
             [this, out = output, in = input](const auto& o) mutable {
               return backend_->_reduce_scatter_base(out, in, o);
             });
}

CheckedBackend::WorkPtr CheckedBackend::reduce_scatter_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::ReduceScatterOptions& options) {
  return run(
      call_of(OpKind::kReduceScatter, join(tensors_text(inputs), " to ", tensors_text(outputs), ' ',
                                           reduce_text(options.reduceOp))),
      options, outputs, [this, out = outputs, in = inputs](const auto& o) mutable {
        return backend_->reduce_scatter_tensor_coalesced(out, in, o);
      });
}

CheckedBackend::WorkPtr CheckedBackend::barrier(const c10d::BarrierOptions& options) {
  return run(call_of(OpKind::kBarrier, ""), options, {},
             [this](const auto& o) { return backend_->barrier(o); });
}

std::shared_ptr<CallChecker> add_checks(const GroupRequest& request, GroupHandles& handles) {
  c10d::ProcessGroup& plain = *handles.process_group;
  const auto devices = plain.getDeviceTypes();
  const auto is_cpu = [](const c10::Device& device) { return device.is_cpu(); };
  if (std::none_of(devices.begin(), devices.end(), is_cpu)) return nullptr;
  const auto backend = plain.getBackend(c10::DeviceType::CPU);
  auto checker = std::make_shared<CallChecker>(backend, request.monitor);
  // A new one, as c10d keeps the backend that a process group has for a type.
  const auto checked =
      wrap_backend(request, plain.getBackendType(),
                   c10::make_intrusive<CheckedBackend>(backend, handles.cpu, checker));
  for (const c10::Device& device : devices) {
    if (device.is_cpu()) continue;
    const auto other = plain.getBackend(device.type());
    checked->setBackend(device.type(),
                        c10d::ProcessGroup::strToBackendType(other->getBackendName()), other);
  }
  handles.process_group = checked;
  return checker;
}

}  // namespace weft::dist
