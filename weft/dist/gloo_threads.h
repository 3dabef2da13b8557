#pragma once

namespace weft::dist {

/// Gloo throws on threads of its own what it finds wrong there, such as a message of another length
/// than this rank expects. Nobody can catch that, so it ends the process. From the first call on,
/// such an end has a line of a CommError and its exit code; any other goes to the handler that was
/// there before.
void explain_ends_of_gloo_threads();

}  // namespace weft::dist
