#pragma once

#include <string>

#include "weft/core/files/file.h"

namespace weft::core {

/// Writes `bytes` at the end of a file that was opened to be appended to, in one piece. `path` is
/// for messages. Throws IoError; when the disk is full, with the bytes that are needed and free.
void append_piece(const FileDescriptor& file, const std::string& path, const std::string& bytes);

/// A file that grows by whole lines, such as a record of what has been done. For one writer.
class LineFile {
 public:
  /// Opens the file, or makes it. Throws IoError.
  explicit LineFile(const std::string& path);

  /// Adds `line`, which ends with a line break, as append_piece does.
  void append(const std::string& line);

 private:
  std::string path_;
  FileDescriptor fd_;
};

}  // namespace weft::core
