#pragma once

#include <string>

namespace weft::core {

/// Where a process writes what it then renames to `path`: "<path>.tmp-<pid>".
std::string temporary_name(const std::string& path);

/// Locks a file or folder of such a name as long as the descriptor, which is of it, is open, so
/// that others see that it is being written. Where the file system has no locks, nothing happens.
void hold_temporary(int descriptor);

/// Removes what processes that are no more have left at the temporary names of `path`: of those
/// whose process is gone (another may have its number), or is this one, what nobody holds. Failures
/// are left to whoever makes the same name.
void remove_leftovers(const std::string& path);

}  // namespace weft::core
