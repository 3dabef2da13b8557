#pragma once

#include <signal.h>
#include <sys/types.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "weft/core/files/file.h"

namespace weft::dist {

/// What a rank's process is started with.
struct SpawnRequest {
  std::vector<std::string> command;
  /// If there is one, and this process has no other thread, the new one runs it in place of the
  /// command, and its result is the exit status: what this process has loaded need not be loaded
  /// again. It is then as after exec, but for memory and what /proc shows of its environment.
  std::function<int()> body = {};
  /// What such a process is called in lists of processes; 15 characters.
  std::string name = {};
  /// Variables that are set; all others are inherited.
  std::vector<std::pair<std::string, std::string>> variables;
  /// Descriptor that stays open across exec; -1: none.
  int kept_fd = -1;
  /// Descriptors for its stdin, stdout and stderr; -1: inherited.
  int stdin_fd = -1;
  int stdout_fd = -1;
  int stderr_fd = -1;
  /// Process group to join; 0: lead a new one; -1: stay in this process's.
  pid_t process_group = -1;
  /// What it gets when this process ends.
  int death_signal = SIGKILL;
  /// Signals blocked in it.
  sigset_t signal_mask{};
};

/// Starts a process that gets its death signal when this one ends, however that happens.
/// Throws IoError if the program cannot be started.
pid_t spawn_rank(const SpawnRequest& request);

/// A pipe whose read end does not block: {read, write}, both closed on exec. Throws IoError.
std::pair<core::FileDescriptor, core::FileDescriptor> make_pipe();

}  // namespace weft::dist
