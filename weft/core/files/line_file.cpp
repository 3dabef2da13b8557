#include "weft/core/files/line_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>

#include "weft/core/error.h"
#include "weft/core/files/atomic_file.h"

namespace weft::core {

LineFile::LineFile(const std::string& path)
    : path_(path), fd_(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  if (!fd_.is_open()) fail_errno(path, "cannot open", errno);
}

void LineFile::append(const std::string& line) {
  const ssize_t written = ::write(fd_.get(), line.data(), line.size());
  if (written < 0) fail_write(path_, line.size(), 0, errno);
  const auto bytes = static_cast<uint64_t>(written);
  if (bytes < line.size()) fail_write(path_, line.size(), bytes, ENOSPC);
}

}  // namespace weft::core
