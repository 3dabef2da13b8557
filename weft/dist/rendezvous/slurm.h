#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "weft/dist/rendezvous/strict_environment.h"

namespace weft::dist {

/// The first host of a list in SLURM's form: "node[03-12,17],gpu1" begins with node03. Several
/// brackets in one name are expanded each. Throws ConfigError, naming `variable`, for a text that
/// is no such list. Source: slurm, "hostlist expressions" in scontrol(1).
std::string first_slurm_host(const std::string& variable, std::string_view list);

/// True in a task that srun has started. A shell of sbatch or salloc has SLURM's variables, too,
/// yet is one process of its own.
bool is_slurm_task(const StrictEnvironment& env);

/// Where something of one step listens.
struct MeetingPlace {
  std::string address;
  int port = 0;
};

/// Where the tasks of this step meet if nobody says otherwise: on the step's first node, at
/// MASTER_PORT, or at a port from 20000 to 31999 that follows from the numbers of job and step.
/// Nothing if the step's nodes are not named. Throws ConfigError for malformed variables.
std::optional<MeetingPlace> slurm_meeting_place(const StrictEnvironment& env);

}  // namespace weft::dist
