#include "weft/core/files/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "weft/core/error.h"
#include "weft/core/files/leftovers.h"

namespace weft::core {
namespace {

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

uint64_t free_bytes(const std::string& folder) {
  struct statvfs info = {};
  if (::statvfs(folder.c_str(), &info) != 0) return 0;
  return static_cast<uint64_t>(info.f_bavail) * info.f_frsize;
}

}  // namespace

void fail_write(const std::string& path, uint64_t expected, uint64_t written, int error_number) {
  if (error_number == ENOSPC || error_number == EDQUOT) {
    const uint64_t missing = expected > written ? expected - written : 0;
    fail<IoError>(path, ": disk full: need ", expected, " bytes, wrote ", written, ", ",
                  free_bytes(folder_of(path)), " free; make room for ", missing,
                  " more or choose another folder");
  }
  fail_errno(path, join("cannot write at byte ", written), error_number);
}

void sync_folder_of(const std::string& path) {
  const std::string folder = folder_of(path);
  const FileDescriptor fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.is_open()) fail_errno(folder, "cannot open the folder", errno);
  // Some file systems can't sync folders and say EINVAL.
  if (::fsync(fd.get()) != 0 && errno != EINVAL) fail_errno(folder, "cannot sync", errno);
}

AtomicFile::AtomicFile(const std::string& path, uint64_t expected_bytes)
    : path_(path), temporary_path_(temporary_name(path)), expected_bytes_(expected_bytes) {
  check<IoError>(!path.empty() && path.find('\0') == std::string::npos, quote(path),
                 ": not a path to write; check the path");
  // A rename would put a file in the place of a device or a pipe.
  struct stat info = {};
  check<IoError>(::stat(path.c_str(), &info) != 0 || S_ISREG(info.st_mode), path,
                 ": not a regular file; write to another path");
  remove_leftovers(path);
  // O_EXCL never follows a link.
  fd_ = FileDescriptor(
      ::open(temporary_path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (!fd_.is_open()) fail_errno(path_, "cannot create " + temporary_path_, errno);
  hold_temporary(fd_.get());
}

AtomicFile::~AtomicFile() {
  if (fd_.is_open()) ::unlink(temporary_path_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t done = ::write(fd_.get(), bytes.data(), bytes.size());
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) fail_write(path_, expected_bytes_, written_bytes_, errno);
    written_bytes_ += static_cast<uint64_t>(done);
    bytes = bytes.subspan(static_cast<size_t>(done));
  }
}

void AtomicFile::commit() {
  if (::fsync(fd_.get()) != 0) fail_write(path_, expected_bytes_, written_bytes_, errno);
  if (::rename(temporary_path_.c_str(), path_.c_str()) != 0) {
    fail_errno(path_, "cannot rename " + temporary_path_ + " to it", errno);
  }
  fd_.reset();
  sync_folder_of(path_);
}

void write_file_atomically(const std::string& path, std::string_view text) {
  AtomicFile file(path, text.size());
  file.write(std::as_bytes(std::span(text)));
  file.commit();
}

}  // namespace weft::core
