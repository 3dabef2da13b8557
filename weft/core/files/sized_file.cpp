#include "weft/core/files/sized_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "weft/core/error.h"
#include "weft/core/files/atomic_file.h"

namespace weft::core {
namespace {

// Zero bytes can't be reserved, and some file systems can't reserve.
void reserve(const FileDescriptor& fd, const std::string& path, uint64_t size) {
  if (size == 0) return;
  const int error = ::posix_fallocate(fd.get(), 0, static_cast<off_t>(size));
  if (error == 0) return;
  if (error != EOPNOTSUPP && error != EINVAL) {
    ::unlink(path.c_str());
    fail_write(path, size, 0, error);
  }
  if (::ftruncate(fd.get(), static_cast<off_t>(size)) != 0) fail_write(path, size, 0, errno);
}

}  // namespace

SizedFile SizedFile::create(const std::string& path, uint64_t size) {
  FileDescriptor fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!fd.is_open()) fail_errno(path, "cannot create", errno);
  reserve(fd, path, size);
  return {path, size, std::move(fd)};
}

SizedFile SizedFile::open(const std::string& path, uint64_t size) {
  FileDescriptor fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd.is_open()) fail_errno(path, "cannot open", errno);
  return {path, size, std::move(fd)};
}

void SizedFile::write_at(uint64_t offset, std::span<const std::byte> bytes) {
  check<InternalError>(offset <= size_ && bytes.size() <= size_ - offset, path_, ": ", bytes.size(),
                       " bytes at ", offset, " of a file of ", size_);
  while (!bytes.empty()) {
    const ssize_t done =
        ::pwrite(fd_.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail_write(path_, size_, written_, errno);
    offset += static_cast<uint64_t>(done);
    written_ += static_cast<uint64_t>(done);
    bytes = bytes.subspan(static_cast<size_t>(done));
  }
}

void SizedFile::sync() {
  if (::fsync(fd_.get()) != 0) fail_write(path_, size_, written_, errno);
  ::posix_fadvise(fd_.get(), 0, 0, POSIX_FADV_DONTNEED);
}

}  // namespace weft::core
