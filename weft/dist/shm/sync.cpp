#include "weft/dist/shm/sync.h"

#include <c10/core/ScalarType.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <cstring>

#include "weft/core/error.h"
#include "weft/dist/launch/process.h"

namespace weft::dist {
namespace {

using core::CommError;
using core::fail;
using Clock = std::chrono::steady_clock;

// How often a sleeping rank looks after its peers.
constexpr auto kLookPeriod = std::chrono::milliseconds(100);
// Longer than waking a rank takes: otherwise one late rank sends the next to sleep, and so on.
constexpr auto kSpinTime = std::chrono::microseconds(400);
// A processor that was given away and came back after so long was used by another program.
constexpr auto kLongTurn = std::chrono::milliseconds(1);
constexpr int kCrowdedWaits = 200;
constexpr int kTurns = 4;
constexpr int kSpins = 64;

// The kernel compares the low half of the counter, which comes first on the machines that we
// support.
uint32_t* futex_word(const ShmCounter& counter) {
  return reinterpret_cast<uint32_t*>(const_cast<std::atomic<uint64_t>*>(&counter.value));
}

void futex_wait(const ShmCounter& counter, uint64_t seen, std::chrono::nanoseconds time) {
  const timespec limit{time / std::chrono::seconds(1), (time % std::chrono::seconds(1)).count()};
  syscall(SYS_futex, futex_word(counter), FUTEX_WAIT, static_cast<uint32_t>(seen), &limit, nullptr,
          0);
}

bool has_processors(const GroupMonitor& monitor) {
  const Peers& peers = monitor.peers();
  const std::string& own = peers.peer(peers.own_rank()).host;
  int here = 0;
  for (int rank = 0; rank < peers.size(); ++rank) here += peers.peer(rank).host == own ? 1 : 0;
  return here <= available_cpus();
}

bool reaches(const ShmCounter& counter, uint64_t value) {
  for (int i = 0; i < kSpins; ++i) {
    if (counter.value.load(std::memory_order_acquire) >= value) return true;
    __builtin_ia32_pause();
  }
  return false;
}

struct Sleeping {
  explicit Sleeping(ShmCounter& c) : counter(c) { counter.sleepers.fetch_add(1); }
  ~Sleeping() { counter.sleepers.fetch_sub(1); }
  Sleeping(const Sleeping&) = delete;
  Sleeping& operator=(const Sleeping&) = delete;
  ShmCounter& counter;
};

}  // namespace

ShmWaiter::ShmWaiter(ShmSegment& segment, std::shared_ptr<GroupMonitor> monitor)
    : segment_(segment), monitor_(std::move(monitor)), has_room_(has_processors(*monitor_)) {}

void ShmWaiter::wake(ShmCounter& counter) {
  syscall(SYS_futex, futex_word(counter), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void ShmWaiter::wait_long(ShmCounter& counter, uint64_t value, OpKind kind, int peer) const {
  if (has_room_ ? spin(counter, value) : take_turns(counter, value)) return;
  wait_asleep(counter, value, kind, peer);
}

bool ShmWaiter::spin(const ShmCounter& counter, uint64_t value) const {
  const auto deadline = Clock::now() + kSpinTime;
  do {
    if (reaches(counter, value)) return true;
    if (counter.processor.load(std::memory_order_relaxed) == sched_getcpu() + 1) return false;
  } while (Clock::now() < deadline);
  return false;
}

// With more ranks than processors the next one can go on when this one steps aside, which is
// quicker than sleeping. Where others use the processors, too, they take the turn.
bool ShmWaiter::take_turns(const ShmCounter& counter, uint64_t value) const {
  if (crowded_.load(std::memory_order_relaxed) > 0) {
    crowded_.fetch_sub(1, std::memory_order_relaxed);
    return false;
  }
  bool reached = false;
  for (int turn = 0; turn < kTurns && !reached; ++turn) {
    const auto start = Clock::now();
    sched_yield();
    reached = reaches(counter, value);
    if (Clock::now() - start < kLongTurn) continue;
    crowded_.store(kCrowdedWaits, std::memory_order_relaxed);
    return reached;
  }
  return reached;
}

void ShmWaiter::wait_asleep(ShmCounter& counter, uint64_t value, OpKind kind, int peer) const {
  const std::vector<int>& ranks = monitor_->world_ranks();
  PeerWatch watch(monitor_->peers(), ranks);
  if (peer != kAnyPeer) watch.look_only_after(ranks[static_cast<size_t>(peer)]);
  const Sleeping sleeping(counter);
  const auto start = Clock::now();
  auto look_at = start + kLookPeriod;
  while (true) {
    const uint64_t seen = counter.value.load();
    if (seen >= value) return;
    check_abort();
    futex_wait(counter, seen, kLookPeriod);
    const auto now = Clock::now();
    if (now < look_at) continue;
    look_at = now + kLookPeriod;
    check_peers(watch, counter, value, kind);
    if (now - start < monitor_->timeout()) continue;
    fail<CommError>(monitor_->where(kind), ": waited for ", monitor_->timeout().count() / 1000,
                    " s; another rank does not take part (WEFT_TIMEOUT_S)",
                    monitor_->what_others_do());
  }
}

void ShmWaiter::check_peers(PeerWatch& watch, const ShmCounter& counter, uint64_t value,
                            OpKind kind) const {
  const auto trouble = watch.trouble();
  // What a rank did before it ended still counts.
  if (!trouble || counter.value.load() >= value) return;
  check_abort();
  fail<CommError>(monitor_->where(kind), ": ", *trouble);
}

void ShmWaiter::abort(const std::string& text) const {
  ShmHeader& header = segment_.header();
  uint32_t expected = 0;
  if (header.aborted.compare_exchange_strong(expected, 1)) {
    const size_t length = std::min(text.size(), header.abort_text.size() - 1);
    std::memcpy(header.abort_text.data(), text.data(), length);
    header.abort_text[length] = '\0';
    header.aborted.store(2);
  }
  const int ranks = segment_.layout().ranks();
  for (int a = 0; a < ranks; ++a) {
    for (const uint64_t step : {0, 1}) wake(segment_.line(a, step).step);
    for (int b = 0; b < ranks; ++b) {
      wake(segment_.channel(a, b).written);
      wake(segment_.channel(a, b).read);
    }
  }
}

void ShmWaiter::check_abort() const {
  const ShmHeader& header = segment_.header();
  if (header.aborted.load() != 2) [[likely]] {
    return;
  }
  throw CommError(header.abort_text.data());
}

ShmSteps::ShmSteps(ShmSegment& segment, int rank, std::shared_ptr<GroupMonitor> monitor)
    : segment_(segment), rank_(rank), waiter_(segment, std::move(monitor)) {}

void ShmSteps::begin(const ShmOperation& operation) {
  waiter_.check_abort();
  operation_ = operation;
  operation_.number = CallNumber::current();
  first_ = true;
}

void ShmSteps::exchange() {
  ++step_;
  ShmLine& own = segment_.line(rank_, step_);
  own.operation = operation_;
  ShmWaiter::advance(own.step, step_);
  const auto kind = static_cast<OpKind>(operation_.kind);
  for (int i = 1; i < ranks(); ++i) {
    const int peer = rank_ + i < ranks() ? rank_ + i : rank_ + i - ranks();
    waiter_.wait(segment_.line(peer, step_).step, step_, kind);
    if (first_) compare(peer);
  }
  first_ = false;
}

void ShmSteps::compare(int peer) const {
  const ShmOperation& theirs = operation(peer);
  const auto kind = static_cast<OpKind>(operation_.kind);
  const bool sizes_may_differ = kind == OpKind::kAllGather || kind == OpKind::kGather ||
                                kind == OpKind::kScatter || kind == OpKind::kReduceScatter ||
                                kind == OpKind::kAllToAll;
  const bool same = theirs.kind == operation_.kind && theirs.reduce == operation_.reduce &&
                    theirs.dtype == operation_.dtype && theirs.root == operation_.root &&
                    theirs.even == operation_.even &&
                    (sizes_may_differ || theirs.count == operation_.count);
  const bool in_step =
      theirs.number == operation_.number || theirs.number == 0 || operation_.number == 0;
  if (same && in_step) [[likely]] {
    return;
  }
  // The lower rank comes first, so that all say it in the same words.
  const auto& monitor = waiter_.monitor();
  const bool own_first = rank_ < peer;
  const ShmOperation& first = own_first ? operation_ : theirs;
  const ShmOperation& second = own_first ? theirs : operation_;
  core::check<CommError>(!same, "dist.Group: group ", monitor.name(), ": ",
                         monitor.peer_name(std::min(rank_, peer)), " called ", describe(first),
                         " as its call ", first.number, ", ",
                         monitor.peer_name(std::max(rank_, peer)), " as its call ", second.number,
                         "; a rank went on after an error that the others did not have, end all "
                         "ranks where one throws");
  fail<CommError>("dist.Group: group ", monitor.name(), ": ",
                  monitor.peer_name(std::min(rank_, peer)), " called ", describe(first), ", ",
                  monitor.peer_name(std::max(rank_, peer)), " called ", describe(second),
                  "; all ranks must make the same calls in the same order");
}

std::string describe(const ShmOperation& operation) {
  const auto kind = static_cast<OpKind>(operation.kind);
  if (kind == OpKind::kBarrier) return "barrier";
  std::string text = core::join(op_name(kind), " of ",
                                c10::toString(static_cast<c10::ScalarType>(operation.dtype)), "[",
                                operation.count, "]");
  if (operation.reduce != 0) {
    text += core::join(", reduction ", static_cast<int>(operation.reduce));
  }
  if (kind == OpKind::kReduceScatter && operation.even == 0) text += ", pieces of several lengths";
  if (operation.root != 0) text += core::join(", root ", operation.root);
  return text;
}

}  // namespace weft::dist
