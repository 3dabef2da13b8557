#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "weft/core/files/file.h"

namespace weft::core {

/// Throws IoError for a write that failed: with the bytes that are needed and free when the disk is
/// full. `written` bytes of `expected` are in the file.
[[noreturn]] void fail_write(const std::string& path, uint64_t expected, uint64_t written,
                             int error_number);
/// Puts the names in the folder that holds `path` on disk: a new or renamed file is safe only then.
/// Throws IoError.
void sync_folder_of(const std::string& path);

/// Writes a file so that its path shows either what was there before or all of the new bytes,
/// whatever happens between: written beside it (path + ".tmp-<pid>"), synced, renamed, and the
/// folder synced. What killed processes have left beside it goes first. Without commit() the file
/// beside it is removed and the path left alone. One writer per path and process at a time.
class AtomicFile {
 public:
  /// `expected_bytes` is what will be written, for the message when the disk is full.
  /// Throws IoError, also if there is something at the path that is no regular file.
  AtomicFile(const std::string& path, uint64_t expected_bytes);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();

  /// Appends. Throws IoError with the path; when the disk is full, also the bytes that are needed
  /// and free.
  void write(std::span<const std::byte> bytes);
  /// Makes the new file visible at the path. Throws IoError.
  void commit();

 private:
  std::string path_;
  std::string temporary_path_;
  uint64_t expected_bytes_;
  uint64_t written_bytes_ = 0;
  FileDescriptor fd_;
};

/// Replaces what is at the path, as AtomicFile, by the text. Throws as it does.
void write_file_atomically(const std::string& path, std::string_view text);

}  // namespace weft::core
