#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "weft/core/files/file.h"

namespace weft::core {

/// A part of a file as the page cache has it: what is copied out of it is copied once, and what
/// lies between is not touched.
class MappedWindow {
 public:
  /// Bytes of the window for one place outside of it, which has room for them.
  struct Copy {
    uint64_t offset = 0;
    uint64_t num_bytes = 0;
    std::byte* to = nullptr;
  };

  /// `num_bytes` bytes from `offset`, which lie within file.size(). `file` outlives this. Throws
  /// IoError when the system refuses.
  MappedWindow(const File& file, uint64_t offset, uint64_t num_bytes);
  MappedWindow(const MappedWindow&) = delete;
  MappedWindow& operator=(const MappedWindow&) = delete;
  ~MappedWindow();

  /// Makes all copies. Throws FormatError if the file has become shorter, or its disk fails,
  /// meanwhile; other threads may copy at the same time.
  void copy(std::span<const Copy> copies) const;

 private:
  const File& file_;
  uint64_t offset_;
  uint64_t num_bytes_;
  void* mapping_ = nullptr;
  // Mappings begin at pages; this is where the window does.
  uint64_t skipped_ = 0;
};

}  // namespace weft::core
