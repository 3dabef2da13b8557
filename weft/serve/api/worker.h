#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace weft::serve {

/// Runs jobs one after the other on a thread of its own: what takes too long for the server's.
class Worker {
 public:
  /// `most`: the most jobs that wait. Throws IoError if the system allows no further thread.
  explicit Worker(size_t most);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  /// False if too many wait, or it has been stopped. A job must not throw.
  bool post(std::function<void()> job);
  /// Drops the jobs that wait and returns once the one that runs is done. Not to be called by a
  /// job.
  void stop();

 private:
  void run();

  size_t most_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace weft::serve
