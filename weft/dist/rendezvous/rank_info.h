#pragma once

#include <functional>
#include <optional>
#include <string>

namespace weft::dist {

/// What the environment says of this process's place among the ranks.
struct RankInfo {
  int rank = 0;
  int size = 1;
  /// Place among the ranks of this host.
  int local_rank = 0;
  int local_size = 1;
  /// Who started the ranks: "none", "weft", "torchrun", "openmpi", "mpich" or "slurm".
  std::string launcher = "none";
  /// The same on all ranks of one job and different for each job: names shared memory and files.
  std::string job_id;
  /// Where rank 0's store listens; empty when the launcher gave none (then one host is assumed).
  std::string master_addr;
  int master_port = 0;
  /// The launcher serves the store: weft's own, or torchrun's, which is not weft's kind.
  bool store_is_served = false;
  /// The rank as the launcher counts. World numbers ranks host by host, whatever the launcher does.
  int launcher_rank = 0;

  /// True if all ranks run on this host.
  bool single_host() const { return local_size == size; }
};

/// Looks up one environment variable.
using EnvLookup = std::function<std::optional<std::string>(const std::string& name)>;

/// Understands the environments of weft launch, torchrun, Open MPI, MPICH (Hydra) and SLURM, in
/// that order; without any of them a world of one. Where several hosts are not told where to meet,
/// SLURM's list of the step's nodes says it. Throws ConfigError, naming the variable, if one
/// is malformed or they contradict each other (rank >= size).
RankInfo rank_info_from_env(const EnvLookup& lookup);
/// The same from this process's own environment.
RankInfo rank_info_from_env();

}  // namespace weft::dist
