#include "weft/core/files/line_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "weft/core/error.h"
#include "weft/core/files/atomic_file.h"

namespace weft::core {

void append_piece(const FileDescriptor& file, const std::string& path, const std::string& bytes) {
  const ssize_t written = ::write(file.get(), bytes.data(), bytes.size());
  if (written < 0) fail_write(path, bytes.size(), 0, errno);
  const auto count = static_cast<uint64_t>(written);
  if (count < bytes.size()) fail_write(path, bytes.size(), count, ENOSPC);
}

LineFile::LineFile(const std::string& path)
    : path_(path), fd_(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  if (!fd_.is_open()) fail_errno(path, "cannot open", errno);
}

void LineFile::append(const std::string& line) { append_piece(fd_, path_, line); }

}  // namespace weft::core
