#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "weft/core/files/file.h"

namespace weft::core {

/// A file of a size that is known before, filled at positions in any order: by several processes
/// too, if their positions differ. Not atomic; it belongs in a folder that nobody looks at yet
/// (AtomicFolder).
class SizedFile {
 public:
  /// Makes the file and reserves its bytes, so that a full disk shows before the work. Throws
  /// IoError, also if there is something at the path.
  static SizedFile create(const std::string& path, uint64_t size);
  /// Opens one that another process has made. Throws IoError.
  static SizedFile open(const std::string& path, uint64_t size);

  const std::string& path() const { return path_; }
  /// Throws IoError, and InternalError beyond the size.
  void write_at(uint64_t offset, std::span<const std::byte> bytes);
  /// Puts what this process wrote on disk and drops it from memory, so that reading it again reads
  /// the disk. Throws IoError.
  void sync();

 private:
  SizedFile(std::string path, uint64_t size, FileDescriptor fd)
      : path_(std::move(path)), size_(size), fd_(std::move(fd)) {}

  std::string path_;
  uint64_t size_;
  uint64_t written_ = 0;
  FileDescriptor fd_;
};

}  // namespace weft::core
