#pragma once

#include <chrono>
#include <string>

#include "weft/dist/backends/backends.h"

namespace weft::dist {

/// Makes a group over MPI by libweft_mpi.so, which is loaded by the first such group: only then
/// does a process need MPI. The ranks come from mpirun or from weft's launcher. Collective over the
/// group, the first time over the world. Throws ConfigError if the library cannot be loaded or is
/// of another version of weft, CommError if a rank does not come.
GroupHandles make_mpi_group(const GroupRequest& request);

/// Rank 0's `text` on all ranks that mpirun has started, by MPI itself; at most 4,095 bytes without
/// zeros. Collective over the world. Throws ConfigError without a fitting MPI, CommError if not all
/// come within `timeout`.
std::string broadcast_by_mpi(const RankInfo& info, const std::string& text,
                             std::chrono::milliseconds timeout);

}  // namespace weft::dist
