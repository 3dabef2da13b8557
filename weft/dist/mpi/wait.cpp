#include "weft/dist/mpi/wait.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include "weft/core/error.h"

namespace weft::dist {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kLookPeriod = 100ms;
// MPI moves data only while it is called, so a rank stays awake for a while before it sleeps.
constexpr auto kAwake = 2ms;
constexpr std::chrono::microseconds kShortestSleep = 20us;
constexpr std::chrono::microseconds kLongestSleep = 500us;
constexpr int kAnyPeer = -1;

}  // namespace

MpiWaiter::MpiWaiter(MpiRuntime& runtime, std::shared_ptr<GroupMonitor> monitor)
    : runtime_(runtime), monitor_(std::move(monitor)) {}

void MpiWaiter::give_up(OpKind kind, const std::string& text) const {
  const std::string whole = core::join(monitor_->where(kind), ": ", text);
  runtime_.fail(whole);
  throw core::CommError(whole);
}

bool MpiWaiter::test(std::span<MPI_Request> requests, OpKind kind,
                     std::span<MPI_Status> statuses) const {
  int done = 0;
  int code = MPI_SUCCESS;
  const auto count = static_cast<int>(requests.size());
  {
    const auto entered = runtime_.enter();
    code = MPI_Testall(count, requests.data(), &done,
                       statuses.empty() ? MPI_STATUSES_IGNORE : statuses.data());
  }
  if (code == MPI_SUCCESS) [[likely]] {
    return done != 0;
  }
  for (const MPI_Status& status : statuses) {
    const bool blamed = status.MPI_ERROR != MPI_SUCCESS && status.MPI_ERROR != MPI_ERR_PENDING;
    if (code == MPI_ERR_IN_STATUS && blamed) code = status.MPI_ERROR;
  }
  give_up(kind, mpi_error_text(code));
}

void MpiWaiter::wait(std::span<MPI_Request> requests, OpKind kind,
                     std::span<MPI_Status> statuses) const {
  wait_watching(requests, kind, statuses, kAnyPeer);
}

void MpiWaiter::wait_for(int peer, std::span<MPI_Request> requests, OpKind kind) const {
  wait_watching(requests, kind, {}, peer);
}

void MpiWaiter::wait_watching(std::span<MPI_Request> requests, OpKind kind,
                              std::span<MPI_Status> statuses, int peer) const {
  constexpr int kFirstTests = 16;
  for (int i = 0; i < kFirstTests; ++i) {
    if (test(requests, kind, statuses)) return;
  }
  wait_long([&] { return test(requests, kind, statuses); }, kind, peer);
}

void MpiWaiter::wait_long(const std::function<bool()>& done, OpKind kind, int peer) const {
  const auto start = Clock::now();
  while (Clock::now() - start < kAwake) {
    if (done()) return;
    sched_yield();
  }
  const std::unique_ptr<PeerWatch> watch = monitor_->watch();
  if (peer != kAnyPeer) {
    watch->look_only_after(monitor_->world_ranks()[static_cast<size_t>(peer)]);
  }
  auto look_at = Clock::now();
  for (auto pause = kShortestSleep; !done(); pause = std::min(2 * pause, kLongestSleep)) {
    std::this_thread::sleep_for(pause);
    runtime_.check_usable();
    if (cancelled_.load()) give_up(kind, "the group went away because of an error");
    const auto now = Clock::now();
    if (now < look_at) continue;
    look_at = now + kLookPeriod;
    look_after_peers(*watch, done, kind);
    if (now - start < monitor_->timeout()) continue;
    give_up(kind, core::join("waited for ", monitor_->timeout().count() / 1000,
                             " s; another rank does not take part (WEFT_TIMEOUT_S)",
                             monitor_->what_others_do()));
  }
}

void MpiWaiter::look_after_peers(PeerWatch& watch, const std::function<bool()>& done,
                                 OpKind kind) const {
  const auto trouble = watch.trouble();
  // What a rank did before it ended still counts.
  if (trouble && !done()) give_up(kind, *trouble);
}

}  // namespace weft::dist
