#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace weft::dist {

/// Runs jobs one after the other on a thread of its own, which starts with the first job.
class WorkQueue {
 public:
  WorkQueue() = default;
  WorkQueue(const WorkQueue&) = delete;
  WorkQueue& operator=(const WorkQueue&) = delete;
  /// Runs what is left, then ends the thread.
  ~WorkQueue();

  /// A job must not throw.
  void push(std::function<void()> job);
  /// Returns once all jobs are done. Cheap when there are none.
  void drain() {
    if (pending_.load(std::memory_order_acquire) != 0) wait_until_idle();
  }

 private:
  void run();
  void wait_until_idle();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  std::atomic<int> pending_{0};
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace weft::dist
