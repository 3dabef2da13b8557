#include "weft/serve/api/worker.h"

#include <utility>

#include "weft/core/thread.h"

namespace weft::serve {

Worker::Worker(size_t most)
    : most_(most), thread_(core::start_thread("serve", [this] { run(); })) {}

Worker::~Worker() { stop(); }

void Worker::stop() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    jobs_.clear();
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

bool Worker::post(std::function<void()> job) {
  const std::lock_guard lock(mutex_);
  if (ends_ || jobs_.size() >= most_) return false;
  jobs_.push_back(std::move(job));
  changed_.notify_one();
  return true;
}

void Worker::run() {
  while (true) {
    std::function<void()> job;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return ends_ || !jobs_.empty(); });
      if (ends_) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
    }
    job();
  }
}

}  // namespace weft::serve
