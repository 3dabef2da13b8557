#include "weft/dist/backends/work_queue.h"

#include <pthread.h>
#include <signal.h>

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
    jobs_.push_back(std::move(job));
    pending_.fetch_add(1, std::memory_order_release);
    if (!thread_.joinable()) {
      // Signals are for the program's own threads.
      sigset_t all;
      sigset_t former;
      sigfillset(&all);
      pthread_sigmask(SIG_BLOCK, &all, &former);
      thread_ = std::thread([this] { run(); });
      pthread_sigmask(SIG_SETMASK, &former, nullptr);
    }
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
