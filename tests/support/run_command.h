#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace weft::test {

struct CommandOptions {
  /// Variables that are set for the command; all others are inherited.
  std::vector<std::pair<std::string, std::string>> variables = {};
  /// Written to its stdin, which is then closed.
  std::string input = {};
  std::chrono::milliseconds timeout{120'000};
};

struct CommandResult {
  /// Exit status; 128 + signal if a signal ended it.
  int status = -1;
  /// It did not end in time and was killed.
  bool timed_out = false;
  std::string out;
  std::string err;
};

/// Runs a program to its end, with its own process group, and collects what it writes. If it does
/// not end in time, its group is killed. Throws IoError if it cannot be started.
CommandResult run_command(const std::vector<std::string>& command,
                          const CommandOptions& options = {});

/// The same for a function in a forked copy of this process; its value is the exit status.
CommandResult run_forked(const std::function<int()>& body, const CommandOptions& options = {});

/// A program that runs while the test goes on; killed with its group when this goes.
class BackgroundCommand {
 public:
  explicit BackgroundCommand(const std::vector<std::string>& command,
                             const CommandOptions& options = {});
  explicit BackgroundCommand(const std::function<int()>& body, const CommandOptions& options = {});
  BackgroundCommand(const BackgroundCommand&) = delete;
  BackgroundCommand& operator=(const BackgroundCommand&) = delete;
  ~BackgroundCommand();

  int pid() const { return pid_; }
  /// Sends it a signal.
  void signal(int number) const;
  /// Reads until stdout or stderr holds `text`. False if it ends or the time is over before.
  bool wait_for_output(const std::string& text);
  /// What it has written to stdout so far, as far as it was read.
  const std::string& output() const { return result_.out; }
  /// Waits for its end.
  CommandResult finish();

 private:
  using Clock = std::chrono::steady_clock;

  void start(const std::function<int()>& body, const CommandOptions& options);
  bool read_some();
  void close_streams();

  int pid_ = -1;
  int out_fd_ = -1;
  int err_fd_ = -1;
  Clock::time_point deadline_;
  CommandResult result_;
};

}  // namespace weft::test
