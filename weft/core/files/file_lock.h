#pragma once

#include <string>

#include "weft/core/files/file.h"

namespace weft::core {

/// Holds a file locked against other processes, from construction until the object or the process
/// ends, however it ends. Processes of other hosts are kept out, too, where the file system passes
/// locks on (NFS does).
class FileLock {
 public:
  /// Makes the file at `path` where it is missing, locks it, and writes `holder` into it, a line
  /// such as "process 12 on host a". Throws IoError, naming the present holder, if another process
  /// has the lock, if the file holds more than a lock does, and if the system refuses it. A file
  /// system without locks is told of by a warning, and nothing is locked.
  FileLock(const std::string& path, const std::string& holder);

 private:
  FileDescriptor fd_;
};

}  // namespace weft::core
