#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "weft/dist/group.h"
#include "weft/dist/rendezvous/rank_info.h"

namespace weft::dist {

/// How the ranks meet and talk.
struct WorldOptions {
  /// "auto", or a row of the backend table: "shm", "gloo", "mpi", "nccl".
  std::string backend = "auto";
  /// WEFT_BACKEND does not replace `backend`: for programs whose flags and files have been weighed
  /// against the variable already.
  bool is_backend_final = false;
  /// How long a collective may wait for a rank that is alive and well.
  std::chrono::milliseconds timeout{600'000};
  /// How long ranks may take to meet at the start.
  std::chrono::milliseconds start_timeout{30'000};
  /// Compare what the ranks are about to call before every collective and message, and throw
  /// CommError on all ranks with both ranks' calls where they differ. Costs one more exchange for
  /// each call; for CPU tensors. All ranks must say the same.
  bool check_collectives = false;
  /// What this process was asked to do, for programs that are started once for each rank: all ranks
  /// must say the same. The program's command line is what to give; leave out what may differ.
  std::vector<std::string> arguments = {};
};

/// All ranks of the job. Made once per process; a world of one has no store and no process group.
class World {
 public:
  /// Meets the other ranks that the environment names. WEFT_BACKEND (unless is_backend_final),
  /// WEFT_TIMEOUT_S, WEFT_START_TIMEOUT_S and WEFT_CHECK_COLLECTIVES (0 or 1) replace what the
  /// options say. Collective over all ranks. Throws ConfigError (unknown backend lists the table;
  /// environment), CommError (a rank did not come, port or shared-memory name in use, versions or
  /// arguments differ). Under mpirun the process gets SIGTERM when its launcher is killed.
  static World from_env(const WorldOptions& options = {});
  /// The world that this process made last, while somebody holds it; null without one.
  static std::shared_ptr<const World> current();

  const RankInfo& info() const;
  int rank() const { return info().rank; }
  int size() const { return info().size; }
  /// The backend's name that "auto" resolved to; "none" in a world of one.
  const std::string& backend() const;
  /// All ranks.
  const Group& group() const;
  /// A world stands for the group of all ranks where a group is asked for.
  operator const Group&() const { return group(); }
  /// The group of `ranks` (ascending world ranks). Collective over the *world*: every rank calls it
  /// with the same list, in the same order; ranks outside get a group of one.
  Group make_group(const std::string& name, const std::vector<int>& ranks) const;
  /// A group of all ranks on another backend of the table. Collective over the world.
  Group make_group_on(const std::string& backend, const std::string& name) const;

 private:
  struct State;
  explicit World(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

/// World::from_env under the name that other libraries have for it.
inline World init(const WorldOptions& options = {}) { return World::from_env(options); }

}  // namespace weft::dist
