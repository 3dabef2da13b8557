#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>
#include <vector>

#include "weft/dist/backends/backends.h"
#include "weft/dist/backends/work_queue.h"
#include "weft/dist/check/call_checker.h"

namespace weft::dist {

/// Any backend, with every call compared between the ranks before it runs, so that code that uses
/// c10d itself is checked as well. Collectives are compared in the order in which they are issued;
/// asynchronous ones on a queue, whose work carries the error. A message is preceded by one that
/// tells its type and shape, which the receiver compares with its own.
class CheckedBackend : public c10d::Backend {
 public:
  using Tensors = std::vector<at::Tensor>;
  using WorkPtr = c10::intrusive_ptr<c10d::Work>;

  /// `can` is what the backend does with CPU tensors.
  CheckedBackend(c10::intrusive_ptr<c10d::Backend> backend, const Capabilities& can,
                 std::shared_ptr<CallChecker> checker);
  /// Waits for what was issued.
  ~CheckedBackend() override;

  /// The name of the backend underneath.
  const std::string getBackendName() const override { return backend_->getBackendName(); }
  void setTimeout(std::chrono::milliseconds timeout) override { backend_->setTimeout(timeout); }

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
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
  /// Refused: the header and the message could come from different ranks.
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;

 private:
  /// Compares, then begins the collective by `issue` with the options that it is given.
  template <class CallOptions, class Issue>
  WorkPtr run(Call call, const CallOptions& options, Tensors outputs, Issue issue);
  WorkPtr run_queued(WorkQueue& queue, Tensors outputs, std::function<void()> job);
  void finish(const WorkPtr& work, OpKind kind) const;
  void receive_checked(const at::Tensor& x, int source, int tag);

  c10::intrusive_ptr<c10d::Backend> backend_;
  // Where the backend compares the sizes of pieces, they may differ; c10d promises equal ones only.
  bool compares_pieces_;
  std::shared_ptr<CallChecker> checker_;
  // A message that nobody takes holds up no other: one queue for each peer, tag and direction.
  std::map<std::pair<int, int>, WorkQueue> sending_;
  std::map<std::pair<int, int>, WorkQueue> receiving_;
};

/// Puts a CheckedBackend around the backend for CPU tensors of `handles`' process group; those for
/// other devices stay. Returns what Group compares its own calls with; null, and nothing is
/// checked, if the group has no backend for CPU tensors.
std::shared_ptr<CallChecker> add_checks(const GroupRequest& request, GroupHandles& handles);

template <class CallOptions, class Issue>
CheckedBackend::WorkPtr CheckedBackend::run(Call call, const CallOptions& options, Tensors outputs,
                                            Issue issue) {
  if (CallChecker::passes()) {
    checker_->queue().drain();
    return issue(options);
  }
  CallOptions now = options;
  now.asyncOp = false;
  if (options.asyncOp) {
    return run_queued(checker_->queue(), std::move(outputs),
                      [this, call = std::move(call), now, issue]() mutable {
                        checker_->check(call);
                        finish(issue(now), call.kind);
                      });
  }
  checker_->check_after_queue(call);
  WorkPtr work = issue(now);
  finish(work, call.kind);
  return work;
}

}  // namespace weft::dist
