#include "weft/core/log.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace weft::core {
namespace {

// Restores what a test changes.
class Log : public ::testing::Test {
 protected:
  ~Log() override { set_log_level(before_); }
  // What `action` writes to stderr.
  template <class Action>
  std::string written(Action&& action) {
    ::testing::internal::CaptureStderr();
    action();
    return ::testing::internal::GetCapturedStderr();
  }

 private:
  LogLevel before_ = log_level();
};

TEST_F(Log, WritesOneLineWithItsLevel) {
  set_log_level(LogLevel::kInfo);
  EXPECT_EQ(written([] { log(LogLevel::kWarn, "x is ", 3); }), "weft: warn: x is 3\n");
}

TEST_F(Log, LeavesOutWhatIsBelowTheLevel) {
  set_log_level(LogLevel::kWarn);
  EXPECT_EQ(written([] {
              log(LogLevel::kDebug, "a");
              log(LogLevel::kInfo, "b");
              log(LogLevel::kError, "c");
            }),
            "weft: error: c\n");
  set_log_level(LogLevel::kOff);
  EXPECT_EQ(written([] { log(LogLevel::kError, "c"); }), "");
}

TEST_F(Log, ALineBreakInTheTextCannotForgeALine) {
  set_log_level(LogLevel::kInfo);
  EXPECT_EQ(written([] { log(LogLevel::kInfo, "a\nweft: error: b\r\x1b"); }),
            "weft: info: a\\x0aweft: error: b\\x0d\\x1b\n");
}

TEST_F(Log, LinesOfSeveralThreadsStayWhole) {
  set_log_level(LogLevel::kInfo);
  const std::string text = written([] {
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([] {
        for (int j = 0; j < 50; ++j) log(LogLevel::kInfo, "line");
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
  const std::string line = "weft: info: line\n";
  ASSERT_EQ(text.size(), 200 * line.size());
  for (size_t i = 0; i < 200; ++i) EXPECT_EQ(text.substr(i * line.size(), line.size()), line);
}

}  // namespace
}  // namespace weft::core
