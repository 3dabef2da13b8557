#include "weft/serve/batch/batch_run.h"

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "weft/core/thread.h"

namespace weft::serve {

// Where one request's answer comes to. Nobody goes before it has.
class BatchRun::Reply : public HttpReply {
 public:
  Reply(BatchRun& run, size_t index) : run_(run), index_(index) {}
  void send(HttpAnswer answer) override {
    if (!is_sent_.exchange(true)) run_.take(index_, std::move(answer));
  }
  // A batch's requests ask for no streams.
  void begin_stream(HttpAnswer answer) override { send(std::move(answer)); }
  void write(std::string /*piece*/) override {}
  void end() override {}
  void on_gone(std::function<void()> /*action*/) override {}

 private:
  BatchRun& run_;
  size_t index_;
  std::atomic<bool> is_sent_ = false;
};

BatchRun::BatchRun(std::vector<BatchRequest> requests, size_t most, HttpHandler handle, Sink sink)
    : requests_(std::move(requests)),
      most_(most),
      handle_(std::move(handle)),
      sink_(std::move(sink)),
      thread_(core::start_thread("batch", [this] { run(); })) {}

BatchRun::~BatchRun() {
  stop();
  thread_.join();
}

void BatchRun::stop() {
  const std::lock_guard lock(mutex_);
  stops_ = true;
  changed_.notify_one();
}

bool BatchRun::is_done() const {
  const std::lock_guard lock(mutex_);
  return is_done_;
}

bool BatchRun::may_ask() const {
  return !stops_ && num_asked_ < requests_.size() && num_asked_ - num_answered_ < most_ &&
         num_asked_ - num_told_ < kAhead * most_;
}

void BatchRun::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] {
      const bool ends = stops_ || num_asked_ == requests_.size();
      return may_ask() || answers_.contains(num_told_) || (ends && num_answered_ == num_asked_);
    });
    if (answers_.contains(num_told_)) {
      tell(lock);
    } else if (may_ask()) {
      const size_t index = num_asked_++;
      lock.unlock();
      handle_(requests_[index].http, std::make_shared<Reply>(*this, index));
      lock.lock();
    } else {
      is_done_ = true;
      return;
    }
  }
}

void BatchRun::tell(std::unique_lock<std::mutex>& lock) {
  auto next = answers_.extract(num_told_);
  lock.unlock();
  sink_(requests_[next.key()], next.mapped());
  lock.lock();
  ++num_told_;
}

void BatchRun::take(size_t index, HttpAnswer answer) {
  const std::lock_guard lock(mutex_);
  answers_.emplace(index, std::move(answer));
  ++num_answered_;
  changed_.notify_one();
}

}  // namespace weft::serve
