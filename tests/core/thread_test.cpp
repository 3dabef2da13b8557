#include "weft/core/thread.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>

#include "tests/core/child.h"
#include "tests/core/error_text.h"
#include "weft/core/error.h"

namespace weft::core {
namespace {

// As another user, who has no processes but this one: root's have no limit.
bool allow_threads(rlim_t count) {
  constexpr uid_t kNobodys = 54321;
  const rlimit limit{count + 1, count + 1};
  return ::setrlimit(RLIMIT_NPROC, &limit) == 0 && ::setuid(kNobodys) == 0;
}

TEST(Thread, RunsAndGetsNoSignals) {
  std::atomic<bool> is_blocked = false;
  start_thread("here", [&] {
    sigset_t blocked;
    pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
    is_blocked = sigismember(&blocked, SIGINT) == 1;
  }).join();
  EXPECT_TRUE(is_blocked);
  sigset_t blocked;
  pthread_sigmask(SIG_BLOCK, nullptr, &blocked);
  EXPECT_EQ(sigismember(&blocked, SIGINT), 0);
}

TEST(Thread, ThatTheSystemRefusesIsAnError) {
  for (const int allowed : {0, 1, 3}) {
    const std::string text = testing::in_child([&] {
      if (!allow_threads(static_cast<rlim_t>(allowed))) return std::string("not allowed");
      const std::string enough =
          testing::error_text([&] { check_can_start_threads("here", allowed); });
      return enough + "|" +
             testing::error_text([&] { check_can_start_threads("here", allowed + 1); });
    });
    if (text == "not allowed") GTEST_SKIP() << "only root can take another user's limits";
    EXPECT_EQ(text,
              "no error|IoError: here: cannot start a thread: Resource temporarily unavailable; "
              "raise the limit of processes (ulimit -u), or use fewer threads or ranks");
  }
}

}  // namespace
}  // namespace weft::core
