#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "weft/core/files/file.h"

namespace weft::train {

/// The bytes of a file, mapped into memory for reading: the system reads what is looked at, and all
/// processes share it. A file that is made shorter while it is mapped ends the process with SIGBUS
/// when the missing bytes are looked at, so only files that are replaced by renaming may be mapped.
class MappedFile {
 public:
  /// Throws as core::File, and IoError when the system can't map it.
  explicit MappedFile(const std::string& path);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  const std::string& path() const { return file_.path(); }
  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  core::File file_;
  std::span<const std::byte> bytes_;
};

}  // namespace weft::train
