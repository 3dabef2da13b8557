#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "weft/dist/backends/backends.h"
#include "weft/dist/backends/block_collectives.h"
#include "weft/dist/backends/tensor_lists.h"
#include "weft/dist/backends/work_queue.h"
#include "weft/dist/reduce_op.h"

namespace weft::dist {

/// c10d's interface over a transport of our own, for CPU tensors. With asyncOp a queue
/// runs the operations in order; without it they run on the caller's thread after the queue is
/// empty. Tensors may be strided. Errors of peers are CommError, others ShapeError.
class BlockBackend : public c10d::Backend {
 public:
  using Tensors = std::vector<at::Tensor>;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  /// `name` is the backend's, e.g. "shm".
  BlockBackend(const char* name, std::unique_ptr<BlockTransport> transport, int rank, int size);
  ~BlockBackend() override;

  /// Reduces contiguous `x` on this thread, after everything that is queued.
  void all_reduce_now(at::Tensor& x, ReduceOp op);
  /// SharedSum::room and SharedSum::add, after everything that is queued.
  float* sum_room_now(int64_t count);
  bool add_sum_now(at::Tensor& x, float* own);
  /// The same for moves of contiguous tensors.
  void all_gather_now(at::Tensor& whole, const at::Tensor& shard);
  void reduce_scatter_now(at::Tensor& shard, const at::Tensor& whole);
  void broadcast_now(at::Tensor& x, int root);

  const std::string getBackendName() const override { return name_; }

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override;
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs,
                 const c10d::GatherOptions& options) override;
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                  const c10d::ScatterOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs,
                   const c10d::AllToAllOptions& options) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_sizes,
                        std::vector<int64_t>& input_sizes,
                        const c10d::AllToAllOptions& options) override;
  WorkPtr send(Tensors& tensors, int destination, int tag) override;
  WorkPtr recv(Tensors& tensors, int source, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;

 private:
  WorkPtr run(c10d::OpType type, bool async, Tensors outputs, std::function<void()> job);
  WorkPtr run_in(WorkQueue& queue, c10d::OpType type, Tensors outputs, std::function<void()> job);
  void check_peer(const char* operation, int peer) const;
  std::vector<Block> pieces_of(const at::Tensor& whole) const;

  CallName call(const char* operation) const;

  const char* name_;
  std::unique_ptr<BlockTransport> transport_;
  BlockCollectives& collectives_;
  int exceptions_;
  // Each direction to or from a peer has its queue, so that a message that nobody takes holds up
  // no other.
  std::map<int, WorkQueue> outgoing_;
  std::map<int, WorkQueue> incoming_;
  WorkQueue queue_;
};

/// weft's name for c10d's reduction. Throws ShapeError for those that our transports have not.
ReduceOp to_reduce_op(const c10d::ReduceOp& op);

/// A group over `transport`. Collective over the group, as far as its calls are.
GroupHandles make_block_group(const GroupRequest& request, const char* name,
                              std::unique_ptr<BlockTransport> transport);

}  // namespace weft::dist
