#pragma once

namespace weft::core {

/// Opens those of stdin, stdout and stderr that this process was started without, so that no file
/// or socket gets their numbers, and with it text that is meant for a reader. Reading such a stdin
/// and writing to such a stdout fail (EBADF); what is written to such a stderr is lost. Ends the
/// process with status 5 where the system refuses. Call before anything else is opened.
void open_standard_streams();

}  // namespace weft::core
