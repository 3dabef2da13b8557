#pragma once

namespace weft::dist {

/// From now on this process gets SIGTERM, through its heartbeat, when the process that started it
/// has ended: Open MPI's and MPICH's launchers can't end ranks that are in no call of MPI when they
/// are killed themselves. Open MPI's is known by the name of its folder as well, so that it is
/// missed even if it ended before this process could look. Safe to call again.
void end_with_launcher();

/// Sends the signal if it is time; for the heartbeat.
void look_after_launcher();

}  // namespace weft::dist
