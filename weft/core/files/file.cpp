#include "weft/core/files/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "weft/core/error.h"

namespace weft::core {

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    reset();
    fd_ = other.release();
  }
  return *this;
}

int FileDescriptor::release() { return std::exchange(fd_, -1); }

void FileDescriptor::reset() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

File::File(const std::string& path) : path_(path) {
  check<FormatError>(path.find('\0') == std::string::npos, quote(path),
                     ": a NUL byte in the path; check the path");
  // O_NONBLOCK: opening a FIFO without a writer would wait for ever.
  fd_ = FileDescriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  const bool is_blank = path.find_first_not_of(" \t") == std::string::npos;
  check<FormatError>(fd_.is_open() || (errno != ENOENT && errno != ENOTDIR),
                     is_blank ? quote(path) : path, ": no such file; check the path");
  if (!fd_.is_open()) fail_errno(path, "cannot open", errno);
  struct stat info = {};
  if (::fstat(fd_.get(), &info) != 0) fail_errno(path, "cannot stat", errno);
  check<FormatError>(S_ISREG(info.st_mode), path, ": not a regular file; give a file's path");
  size_ = static_cast<uint64_t>(info.st_size);
}

void File::read_at(uint64_t offset, std::span<std::byte> destination) const {
  size_t done = 0;
  while (done < destination.size()) {
    const ssize_t got = ::pread(fd_.get(), destination.data() + done, destination.size() - done,
                                static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_errno(path_, join("cannot read at byte ", offset + done), errno);
    check<FormatError>(got > 0, path_, ": truncated: need ", destination.size(), " bytes at byte ",
                       offset, ", the file ends at byte ", offset + done);
    done += static_cast<size_t>(got);
  }
}

// Whether a byte could be read without a disk.
bool File::is_cached(uint64_t offset) const {
  std::byte byte{};
  const iovec place = {&byte, 1};
  return ::preadv2(fd_.get(), &place, 1, static_cast<off_t>(offset), RWF_NOWAIT) == 1;
}

void File::will_need(uint64_t offset, uint64_t num_bytes) const {
  // Giving this advice costs half as much as reading bytes that are in memory already, so it asks
  // here and there first. The ends alone say little: neighbours may have been read.
  constexpr uint64_t kLeastStep = 4096, kLooks = 8;
  const uint64_t step = std::max(kLeastStep, num_bytes / kLooks);
  bool has_all = num_bytes > 0 && is_cached(offset + num_bytes - 1);
  for (uint64_t at = 0; has_all && at < num_bytes; at += step) has_all = is_cached(offset + at);
  if (has_all) return;
  // Only advice: what it returns changes nothing.
  static_cast<void>(::posix_fadvise(fd_.get(), static_cast<off_t>(offset),
                                    static_cast<off_t>(num_bytes), POSIX_FADV_WILLNEED));
}

std::string read_text_file(const std::string& path, uint64_t max_bytes) {
  const File file(path);
  check<FormatError>(file.size() <= max_bytes, path, ": ", file.size(), " bytes, expected at most ",
                     max_bytes);
  std::string text(file.size(), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace weft::core
