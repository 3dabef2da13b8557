#pragma once

#include <string>
#include <vector>

namespace weft::dist {

/// The command that starts a job's launcher on each host, and what each reads first.
struct RemoteLaunch {
  /// One per host, the first for host 0.
  std::vector<std::vector<std::string>> commands;
  /// Written to each one's stdin before all else, e.g. the job's key, which must not stand in a
  /// command line.
  std::string first_line;
  /// Which of the commands run on other hosts: 0 or 1 for each. Those end when their stdin does,
  /// or, for the first, when the others do; a signal would reach only what connects this process to
  /// them.
  std::vector<char> is_remote;
};

/// Runs the commands, all at once. This process's stdin goes to the first; their output goes to
/// this one's, but for an error that an earlier one has said in the same words. Signals that ask
/// this process to end go to those on this host, and to all when they come again; the stdin of the
/// others is closed. So it is when this process ends, however it does. Returns the status of the
/// first that fails, 0 if none does. Throws IoError if a command cannot be started. Call before any
/// other thread is started.
int launch_remotely(const RemoteLaunch& launch);

}  // namespace weft::dist
