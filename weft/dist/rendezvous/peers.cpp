#include "weft/dist/rendezvous/peers.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "weft/core/error.h"
#include "weft/core/thread.h"
#include "weft/dist/launch/process.h"
#include "weft/dist/rendezvous/launcher_watch.h"
#include "weft/dist/rendezvous/limits.h"
#include "weft/dist/store/remote_watch.h"

namespace weft::dist {
namespace {

using namespace std::chrono_literals;

constexpr auto kBeatPeriod = 200ms;

class HeartbeatThread {
 public:
  HeartbeatThread() {
    // Counts from now on, so that a rank that stops right after is noticed.
    own_status().beat.store(1, std::memory_order_relaxed);
    note_progress();
    thread_ = core::start_thread("dist: heartbeat", [this] { run(); });
  }

  ~HeartbeatThread() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    thread_.join();
    // An ending process no longer beats, and is not stuck for that.
    own_status().beat.store(0, std::memory_order_relaxed);
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (!wake_.wait_for(lock, kBeatPeriod, [this] { return stop_; })) {
      auto& beat = own_status().beat;
      const uint32_t next = beat.load(std::memory_order_relaxed) + 1;
      beat.store(next == 0 ? 1 : next, std::memory_order_relaxed);
      note_progress();
      look_after_launcher();
    }
  }

  // Operations are too short to look at a clock in each.
  void note_progress() {
    RankStatus& status = own_status();
    const uint64_t operation = status.operation.load(std::memory_order_relaxed);
    if (std::exchange(seen_, operation) == operation) return;
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    status.progress_time.store(std::chrono::nanoseconds(now).count(), std::memory_order_relaxed);
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  /// The operation of the beat before.
  std::optional<uint64_t> seen_;
  std::thread thread_;
};

core::FileDescriptor open_process(const Peer& peer, const std::string& own_host) {
  if (peer.host != own_host) return core::FileDescriptor();
  core::FileDescriptor fd(static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0)));
  // Another process may have got the number since, or we see another set of process numbers.
  if (process_start_time(peer.pid) != peer.start_time) fd.reset();
  return fd;
}

}  // namespace

void start_heartbeat() {
  own_status();  // made first, so that they go last
  look_after_launcher();
  static HeartbeatThread thread;
}

Peers::~Peers() = default;

Peers::Peers(std::vector<Peer> peers, int own_rank, const StatusPage* page)
    : peers_(std::move(peers)), own_rank_(own_rank), page_(page) {
  const std::string own_host = peers_[static_cast<size_t>(own_rank)].host;
  for (const Peer& peer : peers_) process_fds_.push_back(open_process(peer, own_host));
}

std::string Peers::name(int rank) const {
  const Peer& peer = peers_[static_cast<size_t>(rank)];
  return core::join("rank ", rank, " (pid ", peer.pid, ", host ", peer.host, ")");
}

bool Peers::is_dead(int rank) const {
  if (remote_ != nullptr && remote_->has_ended(rank)) return true;
  const int fd = process_fds_[static_cast<size_t>(rank)].get();
  if (fd < 0) return false;
  pollfd ended{fd, POLLIN, 0};
  return ::poll(&ended, 1, 0) > 0;
}

void Peers::watch_remote(std::unique_ptr<RemoteWatch> remote) { remote_ = std::move(remote); }

std::string Peers::verdict() const { return remote_ == nullptr ? "" : remote_->verdict(); }

std::string Peers::agree(const std::string& seen) const {
  return remote_ == nullptr ? seen : remote_->agree(seen);
}

uint32_t Peers::beat(int rank) const {
  return page_ == nullptr ? 0 : page_->rank(rank).beat.load(std::memory_order_relaxed);
}

std::string Peers::last_operation(int rank) const {
  // What ranks of other hosts do cannot be seen from here.
  if (page_ == nullptr || page_->rank(rank).pid.load() == 0) return {};
  return core::join(" ", describe_operation(page_->rank(rank)));
}

PeerWatch::PeerWatch(const Peers& peers, std::vector<int> ranks)
    : peers_(peers),
      ranks_(std::move(ranks)),
      silent_(ranks_.size(), 0ms),
      last_look_(Clock::now()) {
  std::erase(ranks_, peers.own_rank());
  for (const int rank : ranks_) beats_.push_back(peers.beat(rank));
}

PeerWatch::~PeerWatch() = default;

void PeerWatch::look_only_after(int rank) {
  ranks_ = {rank};
  beats_ = {peers_.beat(rank)};
  silent_ = {0ms};
}

std::optional<std::string> PeerWatch::trouble() {
  static const std::chrono::milliseconds kLimit = silence_limit();
  const auto now = Clock::now();
  const auto looked = std::chrono::duration_cast<std::chrono::milliseconds>(now - last_look_);
  last_look_ = now;
  if (std::string verdict = peers_.verdict(); !verdict.empty()) return verdict;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const int rank = ranks_[i];
    if (peers_.is_dead(rank)) {
      return peers_.agree(peers_.name(rank) + " was killed or has ended" +
                          peers_.last_operation(rank));
    }
    const uint32_t beat = peers_.beat(rank);
    const bool silent = beat != 0 && beat == beats_[i];
    silent_[i] = silent ? silent_[i] + std::min(looked, 2 * kBeatPeriod) : 0ms;
    beats_[i] = beat;
    if (silent_[i] < kLimit) continue;
    return peers_.agree(core::join(peers_.name(rank), " has not answered for ", silent_[i] / 1s,
                                   " s: stopped or stuck", peers_.last_operation(rank)));
  }
  return std::nullopt;
}

}  // namespace weft::dist
