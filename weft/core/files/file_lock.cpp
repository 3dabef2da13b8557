#include "weft/core/files/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "weft/core/error.h"
#include "weft/core/log.h"

namespace weft::core {
namespace {

constexpr size_t kMaxHolderBytes = 200;

std::string read_holder(int fd) {
  std::array<char, kMaxHolderBytes> text{};
  const ssize_t got = ::pread(fd, text.data(), text.size(), 0);
  const std::string holder(text.data(), got > 0 ? static_cast<size_t>(got) : 0);
  return holder.empty() ? "another process" : holder.substr(0, holder.find('\n'));
}

}  // namespace

FileLock::FileLock(const std::string& path, const std::string& holder)
    : fd_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
  if (!fd_.is_open()) fail_errno(path, "cannot open it", errno);
  if (::flock(fd_.get(), LOCK_EX | LOCK_NB) != 0) {
    check<IoError>(errno != EWOULDBLOCK, path, ": held by ", read_holder(fd_.get()),
                   "; wait until it ends, or use another folder");
    log(LogLevel::kWarn, path, ": this file system has no locks (", std::strerror(errno),
        "); see to it that no other run uses the folder");
    return;
  }
  // Others' locks have a line or less.
  const off_t size = ::lseek(fd_.get(), 0, SEEK_END);
  check<IoError>(size <= static_cast<off_t>(kMaxHolderBytes), path,
                 ": expected the lock of a run, ", "got a file of ", size,
                 " bytes; use another folder");
  const std::string line = holder.substr(0, kMaxHolderBytes - 1) + "\n";
  const bool is_written =
      ::ftruncate(fd_.get(), 0) == 0 &&
      ::pwrite(fd_.get(), line.data(), line.size(), 0) == static_cast<ssize_t>(line.size());
  if (!is_written) fail_errno(path, "cannot write", errno);
}

}  // namespace weft::core
