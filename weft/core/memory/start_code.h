#pragma once

namespace weft::core {

/// Gives back the pages of the program and its libraries that hold code and constants, as far as
/// this process has touched them; what runs again comes back from the page cache. libtorch's start
/// alone touches 40 MB that count as this process's memory and are never needed again. Does nothing
/// under a debugger, whose breakpoints lie in such pages.
void release_start_code();

}  // namespace weft::core
