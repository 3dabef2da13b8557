#pragma once

#include <sched.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>

#include "weft/dist/group_monitor.h"
#include "weft/dist/shm/segment.h"

namespace weft::dist {

/// Waiting and being woken in shared memory, with an eye on the peers. To be woken takes far longer
/// than most waits (an idle virtual processor needs 100 µs), and to spin on a processor that the
/// other rank needs helps nobody. So a rank spins while the one that it waits for can run beside
/// it: there are processors for all ranks, and that rank was last on another. It does not give its
/// processor away meanwhile: another program would keep it for milliseconds.
class ShmWaiter {
 public:
  /// For waits in which every rank of the group counts.
  static constexpr int kAnyPeer = -1;

  ShmWaiter(ShmSegment& segment, std::shared_ptr<GroupMonitor> monitor);

  const GroupMonitor& monitor() const { return *monitor_; }

  /// Returns once `counter` is at least `value`; spins first, then sleeps. `kind` is what the
  /// message names. Throws CommError when a peer of the group is gone or silent (for a message only
  /// `peer`, its rank in the group), when a rank has given up, or after the group's timeout.
  void wait(ShmCounter& counter, uint64_t value, OpKind kind, int peer = kAnyPeer) const {
    constexpr int kFirstSpins = 64;
    for (int i = 0; i < kFirstSpins; ++i) {
      if (counter.value.load(std::memory_order_acquire) >= value) return;
      __builtin_ia32_pause();
    }
    wait_long(counter, value, kind, peer);
  }

  /// Sets `counter` and wakes those that sleep on it.
  static void advance(ShmCounter& counter, uint64_t value) {
    counter.processor.store(sched_getcpu() + 1, std::memory_order_relaxed);
    counter.value.exchange(value, std::memory_order_seq_cst);
    if (counter.sleepers.load(std::memory_order_seq_cst) != 0) wake(counter);
  }

  /// Makes every rank of the group give up with `text`; the first text counts.
  void abort(const std::string& text) const;
  /// Throws CommError if a rank has given up.
  void check_abort() const;

 private:
  static void wake(ShmCounter& counter);
  void wait_long(ShmCounter& counter, uint64_t value, OpKind kind, int peer) const;
  bool spin(const ShmCounter& counter, uint64_t value) const;
  bool take_turns(const ShmCounter& counter, uint64_t value) const;
  void wait_asleep(ShmCounter& counter, uint64_t value, OpKind kind, int peer) const;
  void check_peers(PeerWatch& watch, const ShmCounter& counter, uint64_t value, OpKind kind) const;

  ShmSegment& segment_;
  std::shared_ptr<GroupMonitor> monitor_;
  /// A processor for each rank.
  bool has_room_;
  /// Waits left in which the processor is not given away.
  mutable std::atomic<int> crowded_{0};
};

/// The steps of a group's collectives: in each step every rank shows something and waits for all
/// others. A slot may be written again two steps later, because a rank shows step s+1 only after it
/// has done with step s: with slots in pairs one wait per step is enough.
class ShmSteps {
 public:
  ShmSteps(ShmSegment& segment, int rank, std::shared_ptr<GroupMonitor> monitor);

  int rank() const { return rank_; }
  int ranks() const { return segment_.layout().ranks(); }
  const ShmSegment& segment() const { return segment_; }
  const ShmWaiter& waiter() const { return waiter_; }

  /// Begins an operation; call before the first show.
  void begin(const ShmOperation& operation);
  /// Where this rank writes what it shows in the next step.
  std::byte* next_slot() const { return segment_.slot(rank_, step_ + 1); }
  std::byte* next_part() const { return segment_.part(rank_, step_ + 1); }
  /// Shows the next slot to all and waits for theirs. In the first step of an operation the ranks'
  /// operations are compared; CommError if they differ.
  void exchange();
  /// What `rank` shows in this step.
  const std::byte* slot(int rank) const { return segment_.slot(rank, step_); }
  /// A reduced part that `rank` wrote before this step's exchange.
  const std::byte* part(int rank) const { return segment_.part(rank, step_); }
  /// What `rank` said of the operation in its first step.
  const ShmOperation& operation(int rank) const { return segment_.line(rank, step_).operation; }

 private:
  void compare(int peer) const;

  ShmSegment& segment_;
  int rank_;
  ShmWaiter waiter_;
  uint64_t step_ = 0;
  bool first_ = false;
  ShmOperation operation_;
};

/// "all_reduce of Float[10]", for messages.
std::string describe(const ShmOperation& operation);

}  // namespace weft::dist
