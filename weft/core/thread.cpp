#include "weft/core/thread.h"

#include <pthread.h>
#include <signal.h>

#include <latch>
#include <system_error>
#include <utility>
#include <vector>

#include "weft/core/error.h"

namespace weft::core {
namespace {

// Signals that are blocked as long as this lives; a thread inherits what is blocked.
class BlockedSignals {
 public:
  BlockedSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &former_);
  }
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &former_, nullptr); }

 private:
  sigset_t former_{};
};

// Threads that do nothing until this goes.
class WaitingThreads {
 public:
  WaitingThreads() = default;
  WaitingThreads(const WaitingThreads&) = delete;
  WaitingThreads& operator=(const WaitingThreads&) = delete;
  ~WaitingThreads() {
    end_.count_down();
    for (std::thread& thread : threads_) thread.join();
  }

  void add(const std::string& where) {
    threads_.push_back(start_thread(where, [this] { end_.wait(); }));
  }

 private:
  std::latch end_{1};
  std::vector<std::thread> threads_;
};

}  // namespace

std::thread start_thread(const std::string& where, std::function<void()> body) {
  const BlockedSignals blocked;
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& error) {
    fail<IoError>(where, ": cannot start a thread: ", error.code().message(),
                  "; raise the limit of processes (ulimit -u), or use fewer threads or ranks");
  }
}

void check_can_start_threads(const std::string& where, int count) {
  WaitingThreads waiting;
  for (int i = 0; i < count; ++i) waiting.add(where);
}

}  // namespace weft::core
