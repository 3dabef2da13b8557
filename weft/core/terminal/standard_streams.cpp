#include "weft/core/terminal/standard_streams.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <initializer_list>

namespace weft::core {

void open_standard_streams() {
  constexpr int kIoErrorStatus = 5;
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    // open() takes the least number that is free: this one. stdin can then be written alone and
    // stdout read alone, so that using them fails.
    const int mode = fd == STDOUT_FILENO ? O_RDONLY : O_WRONLY;
    if (::open("/dev/null", mode) != fd) ::_exit(kIoErrorStatus);
  }
}

}  // namespace weft::core
