#include "weft/dist/backends/work_queue.h"

#include "weft/core/thread.h"

namespace weft::dist {

WorkQueue::~WorkQueue() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void WorkQueue::push(std::function<void()> job) {
  {
    const std::lock_guard lock(mutex_);
    // Before the job is taken: without a thread nobody would do it.
    if (!thread_.joinable()) thread_ = core::start_thread("dist: work queue", [this] { run(); });
    jobs_.push_back(std::move(job));
    pending_.fetch_add(1, std::memory_order_release);
  }
  changed_.notify_all();
}

void WorkQueue::wait_until_idle() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return pending_.load(std::memory_order_acquire) == 0; });
}

void WorkQueue::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    {
      const std::function<void()> job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      job();
    }
    lock.lock();
    pending_.fetch_sub(1, std::memory_order_release);
    changed_.notify_all();
  }
}

}  // namespace weft::dist
