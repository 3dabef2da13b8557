#include "weft/dist/shm/backend.h"

#include "weft/core/error.h"
#include "weft/dist/shm/tensors.h"
#include "weft/dist/shm/work.h"

namespace weft::dist {

using core::check;
using core::ShapeError;

ShmReduce to_shm_reduce(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return ShmReduce::kSum;
    case ReduceOp::kAverage:
      return ShmReduce::kAverage;
    case ReduceOp::kMin:
      return ShmReduce::kMin;
    case ReduceOp::kMax:
      return ShmReduce::kMax;
    case ReduceOp::kProduct:
      return ShmReduce::kProduct;
  }
  core::fail<core::InternalError>("dist.shm: unknown reduction");
}

ShmReduce to_shm_reduce(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      return ShmReduce::kSum;
    case c10d::ReduceOp::AVG:
      return ShmReduce::kAverage;
    case c10d::ReduceOp::MIN:
      return ShmReduce::kMin;
    case c10d::ReduceOp::MAX:
      return ShmReduce::kMax;
    case c10d::ReduceOp::PRODUCT:
      return ShmReduce::kProduct;
    default:
      core::fail<ShapeError>(
          "dist.shm: reduction: expected sum, average, min, max or product, got another; use gloo");
  }
}

ShmBackend::ShmBackend(ShmSegment segment, int rank, std::shared_ptr<GroupMonitor> monitor)
    : Backend(rank, segment.layout().ranks()),
      segment_(std::move(segment)),
      collectives_(segment_, rank, std::move(monitor)) {
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    const ShmWaiter& waiter = collectives_.waiter();
    outgoing_.try_emplace(peer, ShmSender(segment_, rank_, peer, waiter));
    incoming_.try_emplace(peer, ShmReceiver(segment_, peer, rank_, waiter));
  }
}

ShmBackend::~ShmBackend() = default;

ShmBackend::WorkPtr ShmBackend::run_in(WorkQueue& queue, c10d::OpType type, Tensors outputs,
                                       std::function<void()> job) {
  auto work = c10::make_intrusive<ShmWork>(rank_, type, std::move(outputs));
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

ShmBackend::WorkPtr ShmBackend::run(c10d::OpType type, bool async, Tensors outputs,
                                    std::function<void()> job) {
  if (async) return run_in(queue_, type, std::move(outputs), std::move(job));
  const at::NoGradGuard no_grad;
  queue_.drain();
  job();
  auto work = c10::make_intrusive<ShmWork>(rank_, type, std::move(outputs));
  work->complete();
  return work;
}

void ShmBackend::all_reduce_now(at::Tensor& x, ShmReduce op) {
  queue_.drain();
  collectives_.all_reduce(static_cast<std::byte*>(x.data_ptr()), x.numel(), x.scalar_type(), op);
}

ShmBackend::WorkPtr ShmBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  const at::Tensor x = only("all_reduce", tensors);
  const ShmReduce op = to_shm_reduce(options.reduceOp);
  find_reduce_kernel(x.scalar_type(), op);
  return run(c10d::OpType::ALLREDUCE, options.asyncOp, tensors, [this, x, op]() mutable {
    const at::Tensor dense = x.contiguous();
    collectives_.all_reduce(block_of(dense).data, dense.numel(), dense.scalar_type(), op);
    if (!dense.is_same(x)) x.copy_(dense);
  });
}

ShmBackend::WorkPtr ShmBackend::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  const ShmReduce op = to_shm_reduce(options.reduceOp);
  for (const at::Tensor& x : tensors) {
    check_tensor("all_reduce", x);
    find_reduce_kernel(x.scalar_type(), op);
  }
  return run(c10d::OpType::ALLREDUCE_COALESCED, options.asyncOp, tensors,
             [this, all = tensors, op]() mutable {
               for (at::Tensor& x : all) {
                 const at::Tensor dense = x.contiguous();
                 collectives_.all_reduce(block_of(dense).data, dense.numel(), dense.scalar_type(),
                                         op);
                 if (!dense.is_same(x)) x.copy_(dense);
               }
             });
}

ShmBackend::WorkPtr ShmBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const at::Tensor x = only("reduce", tensors);
  const ShmReduce op = to_shm_reduce(options.reduceOp);
  find_reduce_kernel(x.scalar_type(), op);
  const int root = static_cast<int>(options.rootRank);
  return run(c10d::OpType::REDUCE, options.asyncOp, tensors, [this, x, op, root]() mutable {
    const at::Tensor dense = x.contiguous();
    collectives_.reduce(block_of(dense).data, dense.numel(), dense.scalar_type(), op, root);
    if (rank_ == root && !dense.is_same(x)) x.copy_(dense);
  });
}

ShmBackend::WorkPtr ShmBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  const at::Tensor x = only("broadcast", tensors);
  const int root = static_cast<int>(options.rootRank);
  return run(c10d::OpType::BROADCAST, options.asyncOp, tensors, [this, x, root]() mutable {
    const at::Tensor dense = x.contiguous();
    collectives_.broadcast(block_of(dense), dense.scalar_type(), root);
    if (rank_ != root && !dense.is_same(x)) x.copy_(dense);
  });
}

ShmBackend::WorkPtr ShmBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) {
  const at::Tensor x = only("all_gather", inputs);
  check_list("all_gather", outputs.size(), 1);
  check_list("all_gather", outputs[0].size(), size_);
  return run(c10d::OpType::ALLGATHER, options.asyncOp, outputs[0],
             [this, x, out = outputs[0]]() mutable {
               const at::Tensor dense = x.contiguous();
               const Tensors to = dense_list("all_gather", out, x.scalar_type());
               collectives_.all_gather(block_of(dense), blocks_of(to), x.scalar_type());
               copy_back(to, out);
             });
}

ShmBackend::WorkPtr ShmBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                const c10d::AllgatherOptions& options) {
  check_tensor("all_gather", input);
  check_tensor("all_gather", output);
  return run(c10d::OpType::_ALLGATHER_BASE, options.asyncOp, {output},
             [this, x = input, out = output]() mutable {
               const at::Tensor dense = x.contiguous();
               Tensors whole = dense_list("all_gather", {out}, x.scalar_type());
               const Tensors to = runs_of("all_gather", whole[0], size_);
               collectives_.all_gather(block_of(dense), blocks_of(to), x.scalar_type());
               if (!whole[0].is_same(out)) out.copy_(whole[0]);
             });
}

ShmBackend::WorkPtr ShmBackend::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  check_list("all_gather", outputs.size(), static_cast<int>(inputs.size()));
  WorkPtr last;
  for (size_t i = 0; i < inputs.size(); ++i) {
    last = _allgather_base(outputs[i], inputs[i], options);
  }
  return last ? last : run(c10d::OpType::COALESCED, options.asyncOp, {}, [] {});
}

ShmBackend::WorkPtr ShmBackend::barrier(const c10d::BarrierOptions& options) {
  return run(c10d::OpType::BARRIER, options.asyncOp, {}, [this] { collectives_.barrier(); });
}

void ShmBackend::check_peer(const char* operation, int peer) const {
  check<ShapeError>(peer >= 0 && peer < size_ && peer != rank_, "dist.shm: ", operation,
                    ": expected another rank below ", size_, ", got ", peer);
}

// The message is copied: a sender may go on, and send first on both sides, whatever its size.
ShmBackend::WorkPtr ShmBackend::send(Tensors& tensors, int destination, int tag) {
  const at::Tensor x = only("send", tensors);
  check_peer("send", destination);
  Outgoing& out = outgoing_.at(destination);
  const at::Tensor copy = x.detach().clone(at::MemoryFormat::Contiguous);
  run_in(out.queue, c10d::OpType::SEND, tensors, [this, &out, copy, tag] {
    const Block block = block_of(copy);
    const auto dtype = static_cast<int32_t>(copy.scalar_type());
    try {
      out.sender.send({tag, dtype, block.bytes}, block.data);
    } catch (const core::Error& error) {
      collectives_.waiter().abort(error.what());
      throw;
    }
  });
  auto done = c10::make_intrusive<ShmWork>(rank_, c10d::OpType::SEND, tensors);
  done->complete();
  return done;
}

ShmBackend::WorkPtr ShmBackend::recv(Tensors& tensors, int source, int tag) {
  const at::Tensor x = only("receive", tensors);
  check_peer("receive", source);
  Incoming& in = incoming_.at(source);
  return run_in(in.queue, c10d::OpType::RECV, tensors, [&in, x, tag]() mutable {
    const at::Tensor dense = x.contiguous();
    const Block block = block_of(dense);
    const auto dtype = static_cast<int32_t>(dense.scalar_type());
    in.receiver.receive({tag, dtype, block.bytes}, block.data);
    if (!dense.is_same(x)) x.copy_(dense);
  });
}

}  // namespace weft::dist
