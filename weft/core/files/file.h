#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace weft::core {

/// Owns a file descriptor; closes it when it goes. Movable, not copyable.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(other.release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() { reset(); }

  int get() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }
  /// Gives up ownership and returns the descriptor.
  int release();
  /// Closes it now.
  void reset();

 private:
  int fd_ = -1;
};

/// A regular file opened for reading at positions. Reads are safe from several threads.
class File {
 public:
  /// Throws FormatError when there is no regular file at `path`, IoError when the system refuses.
  explicit File(const std::string& path);

  const std::string& path() const { return path_; }
  /// Size in bytes when it was opened.
  uint64_t size() const { return size_; }
  /// Fills `destination` from byte `offset`. Throws FormatError if the file ends before, IoError
  /// when the system refuses.
  void read_at(uint64_t offset, std::span<std::byte> destination) const;
  /// The descriptor, for mapping.
  int descriptor() const { return fd_.get(); }
  /// Tells the system that these bytes will be read soon, so that it fetches them as one.
  void will_need(uint64_t offset, uint64_t num_bytes) const;

 private:
  bool is_cached(uint64_t offset) const;

  std::string path_;
  FileDescriptor fd_;
  uint64_t size_ = 0;
};

/// The whole of a small text file. Throws IoError, or FormatError above `max_bytes`.
std::string read_text_file(const std::string& path, uint64_t max_bytes);

}  // namespace weft::core
