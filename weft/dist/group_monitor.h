#pragma once

#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "weft/dist/launch/status_page.h"
#include "weft/dist/rendezvous/peers.h"

namespace c10d {
class Work;
}

namespace weft::dist {

/// Follows the operations of one group on this rank: notes each in the status page, and turns
/// what went wrong into a CommError that names the rank. What a backend calls is virtual or stands
/// here, so that one in a library of its own needs none of its code.
class GroupMonitor {
 public:
  /// `world_ranks` are the group's ranks, in its order.
  GroupMonitor(std::string name, std::shared_ptr<const Peers> peers, std::vector<int> world_ranks,
               std::chrono::milliseconds timeout);
  /// Follows a part of `whole`'s ranks in what belongs to the whole's operations: messages name
  /// those, and the status page is left to them.
  GroupMonitor(std::shared_ptr<const GroupMonitor> whole, std::vector<int> world_ranks);

  GroupMonitor(const GroupMonitor&) = delete;
  GroupMonitor& operator=(const GroupMonitor&) = delete;
  virtual ~GroupMonitor();

  const std::string& name() const { return name_; }
  const Peers& peers() const { return *peers_; }
  const std::vector<int>& world_ranks() const { return world_ranks_; }
  std::chrono::milliseconds timeout() const { return timeout_; }
  /// The peer's name by its rank in the group.
  virtual std::string peer_name(int64_t group_rank) const;

  void begin(OpKind kind) {
    begun_.store(kind, std::memory_order_relaxed);
    note_operation(*status_, kind, number_, ++sequence_);
  }
  void end() {
    begun_.store(OpKind::kNone, std::memory_order_relaxed);
    note_operation_done(*status_);
  }
  uint64_t sequence() const { return sequence_; }
  /// Counts one more collective that this rank asks for.
  uint64_t next_call() { return ++calls_; }

  /// Waits for `work`, looking after the peers meanwhile. Throws CommError, also where the backend
  /// underneath throws an exception of its own.
  void wait(c10d::Work& work, OpKind kind) const;
  /// Throws CommError with the rank that is gone, or else with the first line of `error`.
  [[noreturn]] void explain(OpKind kind, const std::exception& error) const;
  /// What the other ranks of the group are doing, for the message of a wait that was too long:
  /// "; rank 1 (pid 5, host x): during barrier #2 of group data". Empty if it cannot be seen.
  virtual std::string what_others_do() const;
  /// "dist.Group: all_reduce #4 of group model".
  virtual std::string where(OpKind kind) const;
  /// Looks after the group's ranks during one wait, which must not outlive this.
  virtual std::unique_ptr<PeerWatch> watch() const;

 private:
  void watch_until_done(c10d::Work& work, OpKind kind) const;

  std::string name_;
  std::shared_ptr<const Peers> peers_;
  std::vector<int> world_ranks_;
  std::chrono::milliseconds timeout_;
  RankStatus* status_;
  uint32_t number_;
  uint64_t sequence_ = 0;
  uint64_t calls_ = 0;
  std::atomic<OpKind> begun_ = OpKind::kNone;
  std::shared_ptr<const GroupMonitor> whole_;
};

/// While one lives, this thread is in a collective of the monitor's group, whose number counts what
/// this rank has asked of the group, calls that were refused included: a rank that goes on after an
/// error which the others did not have is out of step, and its numbers say so. Calls within a call
/// of the same group are parts of it. Ranks compare the numbers where that costs no message, over
/// shared memory: 4 ns of a call.
class CallNumber {
 public:
  /// A null monitor: nothing is counted.
  explicit CallNumber(GroupMonitor* monitor);
  CallNumber(const CallNumber&) = delete;
  CallNumber& operator=(const CallNumber&) = delete;
  ~CallNumber();

  /// Of the call that this thread is in; 0: none that is counted.
  static uint64_t current();

 private:
  const CallNumber* outer_;
  const GroupMonitor* monitor_;
  uint64_t number_ = 0;
};

/// libtorch's texts continue with a stack trace after the first line.
std::string first_line(std::string_view text);

}  // namespace weft::dist
