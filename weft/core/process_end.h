#pragma once

namespace weft::core {

/// Lets this process end without what was registered for its end before this call: destructors of
/// statics and of libraries. What is registered afterwards still runs, and stdio's streams are
/// flushed. libtorch takes a tenth of a second to take its tables of operators apart, and all
/// memory goes with the process anyway. Copies that fork makes of this process end alike.
void end_without_destructors();

}  // namespace weft::core
