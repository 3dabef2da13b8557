#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace weft::dist {

/// What to start, and how.
struct LaunchOptions {
  int num_ranks = 1;
  /// Passed to the ranks as WEFT_BACKEND. For "mpi" the ranks also get places in a job of mpirun
  /// (its path in WEFT_MPIRUN, else that of the MPI of this build).
  std::string backend = "auto";
  /// The program and its arguments.
  std::vector<std::string> command = {};
  /// What the command does, if this is the same program: ranks then begin with the libraries that
  /// are loaded already (SpawnRequest::body). Not used for the backends mpi and nccl, whose
  /// libraries want a process of their own.
  std::function<int()> body = {};
  /// Port of rank 0's store on 127.0.0.1; 0: any free one.
  int port = 0;
  /// Put "[rank] " before each line of output. Otherwise the ranks write straight through.
  bool prefix_output = true;
  /// Time between the signal to end and SIGKILL.
  std::chrono::milliseconds grace{3000};
};

/// Starts `num_ranks` processes of `command` on this host with RANK, WORLD_SIZE, LOCAL_RANK,
/// LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT and WEFT_* set, passes SIGINT/SIGTERM/SIGHUP on, and
/// waits. When one rank fails the others are ended, and one line on stderr names the rank, its
/// signal or status and its last operation. Returns the exit status for the program: 0, a weft
/// exit code, 4 for a rank killed by a signal that nobody asked for, 128+signal when asked to stop.
/// Children die with this process, however it ends.
/// Rank 0 inherits stdin; the others read /dev/null.
/// Throws ConfigError (num_ranks < 1, no command, a build without the mpi backend that is asked
/// for), IoError (port in use, program or mpirun not found). Call before any other thread is
/// started.
int launch(const LaunchOptions& options);

}  // namespace weft::dist
