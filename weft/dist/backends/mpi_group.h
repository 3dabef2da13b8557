#pragma once

#include "weft/dist/backends/backends.h"

namespace weft::dist {

/// Makes a group over MPI by libweft_mpi.so, which is loaded by the first such group: only then
/// does a process need MPI. The ranks come from mpirun or from weft's launcher. Collective over the
/// group, the first time over the world. Throws ConfigError if the library cannot be loaded or is
/// of another version of weft, CommError if a rank does not come.
GroupHandles make_mpi_group(const GroupRequest& request);

}  // namespace weft::dist
