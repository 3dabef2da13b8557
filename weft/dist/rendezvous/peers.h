#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/core/files/file.h"
#include "weft/dist/launch/status_page.h"

namespace weft::dist {

class RemoteWatch;

/// Keeps this process's heartbeat going in own_status() from now on. Safe to call again.
void start_heartbeat();

/// Another rank as the others know it.
struct Peer {
  int rank = 0;
  pid_t pid = 0;
  uint64_t start_time = 0;
  std::string host;
  /// Its rank as the launcher counts, which may have numbered ranks across the hosts.
  int launcher_rank = 0;
};

/// The processes of all ranks, and whether they still run. Ranks of other hosts are seen through
/// the job's store; without that they count as running.
class Peers {
 public:
  /// `page` may be null: then only death is noticed, not silence.
  Peers(std::vector<Peer> peers, int own_rank, const StatusPage* page);
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;
  ~Peers();

  /// From now on ranks of other hosts are looked after, too.
  void watch_remote(std::unique_ptr<RemoteWatch> remote);

  int own_rank() const { return own_rank_; }
  int size() const { return static_cast<int>(peers_.size()); }
  const Peer& peer(int rank) const { return peers_[static_cast<size_t>(rank)]; }
  /// "rank 1 (pid 123, host x)".
  std::string name(int rank) const;
  /// True if the rank's process has ended.
  bool is_dead(int rank) const;
  /// The rank's heartbeat; 0 if it cannot be seen.
  uint32_t beat(int rank) const;
  /// What has happened to the job as all its ranks say it; empty: nothing that is known.
  std::string verdict() const;
  /// Tells the others what this rank has seen. Returns what all of them say: that, or what another
  /// has told before.
  std::string agree(const std::string& seen) const;
  /// "; it was killed or ended during all_reduce #4 of group world", or nothing if not known.
  std::string last_operation(int rank) const;

 private:
  std::vector<Peer> peers_;
  std::vector<core::FileDescriptor> process_fds_;
  int own_rank_;
  const StatusPage* page_;
  std::unique_ptr<RemoteWatch> remote_;
};

/// Looks after some ranks during one wait and says when one of them is gone.
class PeerWatch {
 public:
  PeerWatch(const Peers& peers, std::vector<int> ranks);
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;
  virtual ~PeerWatch();

  /// Call several times a second. What is wrong, e.g. "rank 1 (pid 5, host x) has ended", or
  /// nothing. A rank is silent when its heartbeat stands still for five seconds (0 in
  /// WEFT_HEARTBEAT_TIMEOUT_S: never) of this rank's own watching: a job that is stopped as a
  /// whole and continued is not taken for stuck.
  virtual std::optional<std::string> trouble();
  /// Leaves all but `rank` alone from now on: the others may have ended because they were done.
  virtual void look_only_after(int rank);

 private:
  using Clock = std::chrono::steady_clock;

  const Peers& peers_;
  std::vector<int> ranks_;
  std::vector<uint32_t> beats_;
  std::vector<std::chrono::milliseconds> silent_;
  Clock::time_point last_look_;
};

}  // namespace weft::dist
