#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace weft::dist {

/// What to start, and how.
struct LaunchOptions {
  /// Ranks on this host.
  int num_ranks = 1;
  /// Hosts of the job, with a launcher and num_ranks ranks each, and which of them this is.
  int num_hosts = 1;
  int host = 0;
  /// Passed to the ranks as WEFT_BACKEND, "auto" only in place of another value that the variable
  /// has here. For "mpi" the ranks also get places in a job of mpirun (its path in WEFT_MPIRUN,
  /// else that of the MPI of this build).
  std::string backend = "auto";
  /// The program and its arguments.
  std::vector<std::string> command = {};
  /// What the command does, if this is the same program: ranks then begin with the libraries that
  /// are loaded already (SpawnRequest::body). Not used for the backend nccl, whose library wants a
  /// process of its own.
  std::function<int()> body = {};
  /// Where the ranks meet: an address of host 0 under which all hosts reach it, and a port of it;
  /// 0: any free one, for a job on one host.
  std::string address = "127.0.0.1";
  int port = 0;
  /// Put "[rank] " before each line of output. Otherwise the ranks write straight through.
  bool prefix_output = true;
  /// Time between the signal to end and SIGKILL.
  std::chrono::milliseconds grace{3000};
  /// Names of hosts on which launchers are yet to be started, instead of num_hosts; for whoever
  /// starts them, not for launch().
  std::vector<std::string> host_names = {};
};

/// Set by whoever starts a launcher on another host: the end of the launcher's stdin asks the job
/// to stop as SIGTERM does. A signal does not come through ssh. With the value below rank 0's stdin
/// comes that way, too, in pieces (RelayedInput); with any other, all before the end is ignored.
inline constexpr const char* kLifelineVariable = "WEFT_LAUNCH_LIFELINE";
inline constexpr const char* kLifelineWithInput = "input";

/// Starts `num_ranks` processes of `command` on this host with RANK, WORLD_SIZE, LOCAL_RANK,
/// LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT and WEFT_* set, passes SIGINT/SIGTERM/SIGHUP on, and
/// waits. When one rank fails the others are ended, and one line on stderr names the rank, its
/// signal or status and its last operation; the launchers of the other hosts do and say the same.
/// The ranks prove the job's key to the store at `address`: job_key_from_env(), which all hosts of
/// a job must be given alike, or on one host a new one. Without a key whoever reaches `address` can
/// join a job on several hosts. Returns the exit status for the program: 0, a weft exit code, 4 for
/// a rank killed by a signal that nobody asked for, 128+signal when asked to stop. Children die
/// with this process, however it ends. Rank 0 inherits stdin; the others read /dev/null. Throws
/// ConfigError (num_ranks < 1, no command, several hosts without a port, a build without the mpi
/// backend that is asked for), IoError (port in use, program or mpirun not found,
/// output that cannot be written). Call before any other thread is started.
int launch(const LaunchOptions& options);

}  // namespace weft::dist
