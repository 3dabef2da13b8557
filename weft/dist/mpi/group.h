#pragma once

#include "weft/dist/backends/backends.h"

namespace weft::dist {

/// Makes a group over MPI, which is begun if it was not; the ranks come from mpirun or from weft's
/// launcher. Collective over the group, the first time over the world.
GroupHandles make_mpi_group(const GroupRequest& request);

}  // namespace weft::dist
