#include "weft/dist/backends/block_backend.h"

#include <exception>

#include "weft/core/error.h"
#include "weft/dist/backends/backend_work.h"
#include "weft/dist/backends/tensor_lists.h"

namespace weft::dist {

using core::check;
using core::ShapeError;

namespace {

Message message_of(const at::Tensor& x, int tag) {
  return {tag, static_cast<int32_t>(x.scalar_type()), block_of(x).bytes};
}

class InlineBlocks : public InlineCollectives {
 public:
  explicit InlineBlocks(c10::intrusive_ptr<BlockBackend> backend) : backend_(std::move(backend)) {}

  void all_reduce_inline(at::Tensor& x, ReduceOp op) override { backend_->all_reduce_now(x, op); }
  float* sum_room(int64_t count) override { return backend_->sum_room_now(count); }
  bool add_sum_inline(at::Tensor& x, float* own) override { return backend_->add_sum_now(x, own); }
  void all_gather_inline(at::Tensor& whole, const at::Tensor& shard) override {
    backend_->all_gather_now(whole, shard);
  }
  void reduce_scatter_inline(at::Tensor& shard, const at::Tensor& whole) override {
    backend_->reduce_scatter_now(shard, whole);
  }
  void broadcast_inline(at::Tensor& x, int64_t root) override {
    backend_->broadcast_now(x, static_cast<int>(root));
  }

 private:
  c10::intrusive_ptr<BlockBackend> backend_;
};

}  // namespace

ReduceOp to_reduce_op(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      return ReduceOp::kSum;
    case c10d::ReduceOp::AVG:
      return ReduceOp::kAverage;
    case c10d::ReduceOp::MIN:
      return ReduceOp::kMin;
    case c10d::ReduceOp::MAX:
      return ReduceOp::kMax;
    case c10d::ReduceOp::PRODUCT:
      return ReduceOp::kProduct;
    default:
      core::fail<ShapeError>(
          "dist.Group: reduction: expected sum, average, min, max or product, got another; use "
          "gloo");
  }
}

GroupHandles make_block_group(const GroupRequest& request, const char* name,
                              std::unique_ptr<BlockTransport> transport) {
  const Capabilities can = transport->collectives().capabilities();
  auto backend =
      c10::make_intrusive<BlockBackend>(name, std::move(transport), request.rank, request.size);
  return {wrap_backend(request, c10d::ProcessGroup::BackendType::CUSTOM, backend),
          can,
          {},
          std::make_shared<InlineBlocks>(backend)};
}

BlockBackend::BlockBackend(const char* name, std::unique_ptr<BlockTransport> transport, int rank,
                           int size)
    : Backend(rank, size),
      name_(name),
      transport_(std::move(transport)),
      collectives_(transport_->collectives()),
      exceptions_(std::uncaught_exceptions()) {
  for (int peer = 0; peer < size_; ++peer) {
    outgoing_.try_emplace(peer);
    incoming_.try_emplace(peer);
  }
}

BlockBackend::~BlockBackend() { transport_->leave(std::uncaught_exceptions() > exceptions_); }

BlockBackend::WorkPtr BlockBackend::run_in(WorkQueue& queue, c10d::OpType type, Tensors outputs,
                                           std::function<void()> job) {
  auto work = c10::make_intrusive<BackendWork>(rank_, type, std::move(outputs));
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

BlockBackend::WorkPtr BlockBackend::run(c10d::OpType type, bool async, Tensors outputs,
                                        std::function<void()> job) {
  if (async) return run_in(queue_, type, std::move(outputs), std::move(job));
  const at::NoGradGuard no_grad;
  queue_.drain();
  job();
  auto work = c10::make_intrusive<BackendWork>(rank_, type, std::move(outputs));
  work->complete();
  return work;
}

void BlockBackend::all_reduce_now(at::Tensor& x, ReduceOp op) {
  queue_.drain();
  collectives_.all_reduce(static_cast<std::byte*>(x.data_ptr()), x.numel(), x.scalar_type(), op);
}

float* BlockBackend::sum_room_now(int64_t count) {
  queue_.drain();
  return reinterpret_cast<float*>(
      collectives_.sum_room(static_cast<size_t>(count) * sizeof(float)));
}

bool BlockBackend::add_sum_now(at::Tensor& x, float* own) {
  queue_.drain();
  return collectives_.add_sum(block_of(x), reinterpret_cast<std::byte*>(own));
}

// The ranks' equal pieces of `whole`.
std::vector<Block> BlockBackend::pieces_of(const at::Tensor& whole) const {
  const Block all = block_of(whole);
  const size_t bytes = all.bytes / static_cast<size_t>(size_);
  std::vector<Block> pieces;
  for (size_t r = 0; r < static_cast<size_t>(size_); ++r) {
    pieces.push_back({all.data + r * bytes, bytes});
  }
  return pieces;
}

void BlockBackend::all_gather_now(at::Tensor& whole, const at::Tensor& shard) {
  queue_.drain();
  collectives_.all_gather(block_of(shard), pieces_of(whole), shard.scalar_type());
}

void BlockBackend::reduce_scatter_now(at::Tensor& shard, const at::Tensor& whole) {
  collectives_.check_reduction(shard.scalar_type(), ReduceOp::kSum);
  queue_.drain();
  collectives_.reduce_scatter(pieces_of(whole), block_of(shard), shard.scalar_type(),
                              ReduceOp::kSum);
}

void BlockBackend::broadcast_now(at::Tensor& x, int root) {
  queue_.drain();
  collectives_.broadcast(block_of(x), x.scalar_type(), root);
}

BlockBackend::WorkPtr BlockBackend::allreduce(Tensors& tensors,
                                              const c10d::AllreduceOptions& options) {
  const at::Tensor x = only(call("all_reduce"), tensors);
  const ReduceOp op = to_reduce_op(options.reduceOp);
  collectives_.check_reduction(x.scalar_type(), op);
  return run(c10d::OpType::ALLREDUCE, options.asyncOp, tensors, [this, x, op]() mutable {
    const at::Tensor dense = x.contiguous();
    collectives_.all_reduce(block_of(dense).data, dense.numel(), dense.scalar_type(), op);
    if (!dense.is_same(x)) x.copy_(dense);
  });
}

BlockBackend::WorkPtr BlockBackend::allreduce_coalesced(
    Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  const ReduceOp op = to_reduce_op(options.reduceOp);
  for (const at::Tensor& x : tensors) {
    check_tensor(call("all_reduce"), x);
    collectives_.check_reduction(x.scalar_type(), op);
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

BlockBackend::WorkPtr BlockBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  const at::Tensor x = only(call("reduce"), tensors);
  const ReduceOp op = to_reduce_op(options.reduceOp);
  collectives_.check_reduction(x.scalar_type(), op);
  const int root = static_cast<int>(options.rootRank);
  return run(c10d::OpType::REDUCE, options.asyncOp, tensors, [this, x, op, root]() mutable {
    const at::Tensor dense = x.contiguous();
    collectives_.reduce(block_of(dense).data, dense.numel(), dense.scalar_type(), op, root);
    if (rank_ == root && !dense.is_same(x)) x.copy_(dense);
  });
}

BlockBackend::WorkPtr BlockBackend::broadcast(Tensors& tensors,
                                              const c10d::BroadcastOptions& options) {
  const at::Tensor x = only(call("broadcast"), tensors);
  const int root = static_cast<int>(options.rootRank);
  return run(c10d::OpType::BROADCAST, options.asyncOp, tensors, [this, x, root]() mutable {
    const at::Tensor dense = x.contiguous();
    collectives_.broadcast(block_of(dense), dense.scalar_type(), root);
    if (rank_ != root && !dense.is_same(x)) x.copy_(dense);
  });
}

BlockBackend::WorkPtr BlockBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions& options) {
  const at::Tensor x = only(call("all_gather"), inputs);
  check_list(call("all_gather"), outputs.size(), 1);
  check_list(call("all_gather"), outputs[0].size(), size_);
  return run(c10d::OpType::ALLGATHER, options.asyncOp, outputs[0],
             [this, x, out = outputs[0]]() mutable {
               const at::Tensor dense = x.contiguous();
               const Tensors to = dense_list(call("all_gather"), out, x.scalar_type());
               collectives_.all_gather(block_of(dense), blocks_of(to), x.scalar_type());
               copy_back(to, out);
             });
}

BlockBackend::WorkPtr BlockBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                    const c10d::AllgatherOptions& options) {
  check_tensor(call("all_gather"), input);
  check_tensor(call("all_gather"), output);
  return run(c10d::OpType::_ALLGATHER_BASE, options.asyncOp, {output},
             [this, x = input, out = output]() mutable {
               const at::Tensor dense = x.contiguous();
               Tensors whole = dense_list(call("all_gather"), {out}, x.scalar_type());
               const Tensors to = runs_of(call("all_gather"), whole[0], size_);
               collectives_.all_gather(block_of(dense), blocks_of(to), x.scalar_type());
               if (!whole[0].is_same(out)) out.copy_(whole[0]);
             });
}

BlockBackend::WorkPtr BlockBackend::allgather_into_tensor_coalesced(
    Tensors& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  check_list(call("all_gather"), outputs.size(), static_cast<int>(inputs.size()));
  WorkPtr last;
  for (size_t i = 0; i < inputs.size(); ++i) {
    last = _allgather_base(outputs[i], inputs[i], options);
  }
  return last ? last : run(c10d::OpType::COALESCED, options.asyncOp, {}, [] {});
}

BlockBackend::WorkPtr BlockBackend::barrier(const c10d::BarrierOptions& options) {
  return run(c10d::OpType::BARRIER, options.asyncOp, {}, [this] { collectives_.barrier(); });
}

CallName BlockBackend::call(const char* operation) const { return {name_, operation}; }

void BlockBackend::check_peer(const char* operation, int peer) const {
  check<ShapeError>(peer >= 0 && peer < size_ && peer != rank_, call(operation),
                    ": expected another rank below ", size_, ", got ", peer);
}

// The message is copied: a sender may continue, and both sides may send first, whatever its size.
BlockBackend::WorkPtr BlockBackend::send(Tensors& tensors, int destination, int tag) {
  const at::Tensor x = only(call("send"), tensors);
  check_peer("send", destination);
  const at::Tensor copy = x.detach().clone(at::MemoryFormat::Contiguous);
  const auto wait = transport_->begin_send(destination, message_of(copy, tag), block_of(copy).data);
  const auto job = [this, copy, wait] {
    try {
      wait();
    } catch (const core::Error& error) {
      transport_->give_up(error.what());
      throw;
    }
  };
  run_in(outgoing_.at(destination), c10d::OpType::SEND, tensors, job);
  auto done = c10::make_intrusive<BackendWork>(rank_, c10d::OpType::SEND, tensors);
  done->complete();
  return done;
}

BlockBackend::WorkPtr BlockBackend::recv(Tensors& tensors, int source, int tag) {
  const at::Tensor x = only(call("receive"), tensors);
  check_peer("receive", source);
  const auto job = [this, x, source, tag]() mutable {
    const at::Tensor dense = x.contiguous();
    transport_->receive(source, message_of(dense, tag), block_of(dense).data);
    if (!dense.is_same(x)) x.copy_(dense);
  };
  return run_in(incoming_.at(source), c10d::OpType::RECV, tensors, job);
}

BlockBackend::WorkPtr BlockBackend::recvAnysource(Tensors& tensors, int tag) {
  const at::Tensor x = only(call("receive"), tensors);
  auto work = c10::make_intrusive<BackendWork>(rank_, c10d::OpType::RECVANYSOURCE, tensors);
  // This rank's own direction is free: nobody sends to itself.
  incoming_.at(rank_).push([this, work, x, tag]() mutable {
    const at::NoGradGuard no_grad;
    try {
      const at::Tensor dense = x.contiguous();
      work->set_source(transport_->receive_any(message_of(dense, tag), block_of(dense).data));
      if (!dense.is_same(x)) x.copy_(dense);
      work->complete();
    } catch (...) {
      work->complete(std::current_exception());
    }
  });
  return work;
}

}  // namespace weft::dist
