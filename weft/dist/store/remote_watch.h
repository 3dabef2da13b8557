#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "weft/core/files/file.h"
#include "weft/dist/store/health_board.h"
#include "weft/dist/store/wire.h"

namespace weft::dist {

/// What one rank tells the job's store of itself, and hears of the others.
struct RemoteWatchOptions {
  HealthReport self;
  /// What this rank does at the moment, for HealthReport::doing; called by the watch's thread.
  std::function<std::string()> doing;
  /// Who serves the store, as messages name it: "rank 0 (pid 7, host a)".
  std::string server;
  /// If it is a rank; -1: a launcher.
  int server_rank = -1;
  /// max(): silence is never taken for an end.
  std::chrono::milliseconds silence_limit{5000};
};

/// Heartbeats of a rank to its job's store, by a thread of its own: so ranks on other hosts, whose
/// processes cannot be seen from here, are known to live, and all ranks of the job say the same of
/// a fault. When this goes the rank has left in order.
class RemoteWatch {
 public:
  /// `socket` is connected to the store, and the key proven on it.
  RemoteWatch(core::FileDescriptor socket, RemoteWatchOptions options);
  RemoteWatch(const RemoteWatch&) = delete;
  RemoteWatch& operator=(const RemoteWatch&) = delete;
  ~RemoteWatch();

  /// True once the rank's process has ended, in order or not.
  bool has_ended(int rank) const;
  /// What has happened to the job, in words that all ranks share; empty: nothing that is known.
  std::string verdict() const;
  /// Says what this rank has seen, and returns what the job takes for the cause: that, or what
  /// another has said before. Takes two seconds at most.
  std::string agree(const std::string& seen);

 private:
  void run();
  void talk();
  std::string next_words(bool beats);
  bool is_over() const;
  void hear(MessageReader state);
  void judge(const std::string& verdict);
  void judge_silence();

  core::FileDescriptor socket_;
  RemoteWatchOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  bool store_goes_ = false;
  std::string to_propose_;
  std::string verdict_;
  std::string store_host_;
  std::set<int> ended_;
  std::thread thread_;
};

}  // namespace weft::dist
