#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>

#include "weft/dist/group_monitor.h"
#include "weft/dist/mpi/api.h"
#include "weft/dist/rendezvous/rank_info.h"

namespace weft::dist {

/// MPI as this process uses it. Begun by the first group that needs it; ended once, when the
/// process ends well and weft has begun it.
class MpiRuntime {
 public:
  /// The process's one; begins MPI if nobody has. Collective over the world the first time.
  /// Throws ConfigError if MPI does not see the ranks that `info` names, or was begun for one
  /// thread only; CommError if MPI cannot begin.
  static MpiRuntime& start(const RankInfo& info, const std::shared_ptr<GroupMonitor>& monitor);

  /// Gives rank 0's `size` bytes to all ranks before there is any group; begins MPI if nobody has.
  /// Collective over the world. Throws as start() does, and CommError if not all come within
  /// `timeout`.
  static void broadcast(const RankInfo& info, char* bytes, int size,
                        std::chrono::milliseconds timeout);

  MpiRuntime(const MpiRuntime&) = delete;
  MpiRuntime& operator=(const MpiRuntime&) = delete;
  ~MpiRuntime() = default;

  /// To be held during each call of MPI. It locks nothing where MPI lets all threads in at once.
  std::unique_lock<std::mutex> enter() {
    return all_threads_ ? std::unique_lock<std::mutex>() : std::unique_lock(mutex_);
  }

  /// An operation has not come to its end. MPI may still write to its memory and there is no way
  /// to take it back, so that from now on no MPI operation is begun or continued in this process.
  void fail(const std::string& text);
  /// Throws CommError with the text of the first failure, if there was one.
  void check_usable() const {
    if (failed_.load(std::memory_order_acquire)) throw_failure();
  }
  /// MPI will not be ended in order: an operation was given up.
  void skip_end() { skip_end_.store(true); }

  /// At the end of the process, which ends with `status`.
  void end(int status);

 private:
  MpiRuntime() = default;

  static MpiRuntime& only();
  void begin(const RankInfo& info);
  [[noreturn]] void throw_failure() const;
  bool others_end_too() const;

  bool begun_here_ = false;
  bool all_threads_ = false;
  std::mutex mutex_;
  std::atomic<bool> failed_{false};
  std::atomic<bool> skip_end_{false};
  std::string failure_;
  std::shared_ptr<GroupMonitor> monitor_;
  std::chrono::milliseconds patience_{2000};
};

/// MPI's own words for an error code.
std::string mpi_error_text(int code);
/// Throws CommError with `where` and MPI's own words unless `code` says success.
void check_mpi(int code, const std::string& where);

}  // namespace weft::dist
