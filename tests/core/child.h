#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>

namespace weft::testing {

/// Runs `action`, which returns a string, in a forked process and returns that string: for what
/// changes the whole process, such as limits, users or mounts. Empty if the process died.
template <class Action>
std::string in_child(Action&& action) {
  std::array<int, 2> ends{};
  if (::pipe(ends.data()) != 0) return "";
  const pid_t child = ::fork();
  if (child == 0) {
    const std::string text = action();
    const ssize_t written = ::write(ends[1], text.data(), text.size());
    ::_exit(written == static_cast<ssize_t>(text.size()) ? 0 : 1);
  }
  ::close(ends[1]);
  std::string text;
  std::array<char, 4096> piece{};
  for (ssize_t got = 0; (got = ::read(ends[0], piece.data(), piece.size())) > 0;) {
    text.append(piece.data(), static_cast<size_t>(got));
  }
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? text : "";
}

}  // namespace weft::testing
