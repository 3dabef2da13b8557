#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "weft/dist/reduce_op.h"

namespace c10d {
class ProcessGroup;
class Work;
}  // namespace c10d

namespace weft::dist {

class CallChecker;
class GroupMonitor;
class PendingSends;
struct Capabilities;
struct GroupHandles;

enum class OpKind : uint8_t;

/// A collective that was begun and runs beside this thread. The tensors that it was given are not
/// to be touched until wait() has returned.
class PendingWork {
 public:
  PendingWork(c10::intrusive_ptr<c10d::Work> work, std::shared_ptr<GroupMonitor> monitor);
  PendingWork(const PendingWork&) = delete;
  PendingWork& operator=(const PendingWork&) = delete;
  ~PendingWork();

  /// Throws CommError as the call itself would.
  void wait();

 private:
  c10::intrusive_ptr<c10d::Work> work_;
  std::shared_ptr<GroupMonitor> monitor_;
};

/// Calls of one kind that a rank has made in a group, and the bytes of the whole tensors: what is
/// reduced, what a gather gives, what is scattered.
struct OperationTraffic {
  uint64_t calls = 0;
  uint64_t bytes = 0;

  void add(uint64_t more) {
    ++calls;
    bytes += more;
  }
  bool operator==(const OperationTraffic&) const = default;
};

/// What went through a group, counted on this rank. Calls of libtorch's handle are not seen.
struct Traffic {
  OperationTraffic all_reduce, all_gather, reduce_scatter, broadcast, send;
  bool operator==(const Traffic&) const = default;
};

/// A set of ranks that communicate. A cheap value: copies share one process group. In a group of
/// one every collective is a no-op and there is no process group.
/// Every method is collective: all ranks of the group call it, in the same order, with tensors of
/// the same shape and dtype. They throw CommError, naming the rank, when a peer dies or hangs.
/// Whether the calls fit each other is checked in full under WorldOptions::check_collectives.
class Group {
 public:
  /// The group of this rank alone.
  Group();
  /// `name` is used in messages, e.g. "model"; `handles` are what a backend has made. `monitor`,
  /// which names the ranks in errors, and `checker`, which compares the ranks' calls, may be null.
  Group(std::string name, GroupHandles handles, std::shared_ptr<GroupMonitor> monitor = nullptr,
        std::shared_ptr<CallChecker> checker = nullptr);

  int64_t rank() const { return rank_; }
  int64_t size() const { return size_; }
  const std::string& name() const { return name_; }
  /// libtorch's handle, for code of one's own; null in a group of one.
  const c10::intrusive_ptr<c10d::ProcessGroup>& process_group() const;
  bool operator==(const Group& other) const { return process_group() == other.process_group(); }
  /// What a backend has made for it (backends/group_handles.h); empty in a group of one.
  const GroupHandles& handles() const { return *handles_; }

  /// Reduces `x` in place; x may be strided. Sums, averages and products of half types are
  /// computed in fp32 and rounded once, on every backend for CPU tensors.
  void all_reduce(at::Tensor& x, ReduceOp op = ReduceOp::kSum) const;
  /// Whether the ranks move bytes through memory that all of them map. Not collective.
  bool shares_memory() const;
  /// Concatenates the ranks' shards along `dim`, rank order. Sizes along `dim` may differ.
  /// `sizes` are all ranks' lengths along dim; empty: they are exchanged first.
  at::Tensor all_gather(const at::Tensor& shard, int64_t dim,
                        const std::vector<int64_t>& sizes = {}) const;
  /// Sums `x` over the ranks and returns this rank's piece along `dim`; `sizes` are all ranks'
  /// lengths; empty: balanced by shard::part.
  at::Tensor reduce_scatter(const at::Tensor& x, int64_t dim,
                            const std::vector<int64_t>& sizes = {}) const;
  /// The same two for contiguous tensors of one length on all ranks, without fresh memory:
  /// `whole` is the ranks' `shard`s end to end; `shard` becomes this rank's part of the sum of
  /// `whole`. Throw ShapeError unless whole has size() times shard's elements, and its dtype. Where
  /// ranks share memory, the shard of a gather may be this rank's own part of `whole`.
  void all_gather_into(at::Tensor& whole, const at::Tensor& shard) const;
  void reduce_scatter_into(at::Tensor& shard, const at::Tensor& whole) const;
  /// Begins all_gather_into and returns at once; null in a group of one, where it is done. What the
  /// ranks do meanwhile in this group must again be the same, in the same order.
  std::unique_ptr<PendingWork> begin_all_gather_into(at::Tensor& whole,
                                                     const at::Tensor& shard) const;
  /// Overwrites `x` with the root's; root is a rank within the group.
  void broadcast(at::Tensor& x, int64_t root) const;
  /// Point to point within the group. `send` copies `x` and returns before it is taken, so that all
  /// ranks may send first; an error shows in a later send. `receive` blocks.
  void send(const at::Tensor& x, int64_t destination) const;
  void receive(at::Tensor& x, int64_t source) const;
  void barrier() const;
  /// Throws CommError listing all ranks' texts unless all ranks pass the same `text`. `what` says
  /// what should agree, e.g. "model file".
  void check_agreement(const std::string& what, const std::string& text) const;
  /// What this rank has sent through the group so far. Copies of a group share it.
  const Traffic& traffic() const { return *traffic_; }

 private:
  friend class SharedSum;

  const Capabilities& capabilities(const at::Tensor& x) const;
  std::vector<at::Tensor> gather_parts(const at::Tensor& shard,
                                       const std::vector<int64_t>& sizes) const;
  std::vector<int64_t> exchange_sizes(int64_t own) const;
  void reduce_dense(at::Tensor& x, ReduceOp op, OpKind kind) const;
  void reduce_by_backend(at::Tensor& x, ReduceOp op, OpKind kind) const;
  at::Tensor scatter_sum(const at::Tensor& x, int64_t dim, const std::vector<int64_t>& sizes) const;
  void exchange_and_sum(at::Tensor& sum, const at::Tensor& pieces,
                        const std::vector<int64_t>& lengths) const;
  at::Tensor exchange(const at::Tensor& packed, std::vector<int64_t> lengths) const;
  std::unique_ptr<PendingWork> gather_into(at::Tensor& whole, const at::Tensor& shard,
                                           bool async) const;
  void check_peer(const char* where, int64_t peer) const;
  template <class Function>
  auto run_operation(OpKind kind, Function&& function) const;
  template <class Describe, class Function>
  auto run_collective(OpKind kind, Describe&& describe, Function&& function) const;
  void abandon() const;

  std::string name_ = "self";
  int64_t rank_ = 0;
  int64_t size_ = 1;
  std::shared_ptr<const GroupHandles> handles_;
  std::shared_ptr<GroupMonitor> monitor_;
  std::shared_ptr<CallChecker> checker_;
  std::shared_ptr<PendingSends> pending_sends_;
  std::shared_ptr<Traffic> traffic_ = std::make_shared<Traffic>();
};

}  // namespace weft::dist
