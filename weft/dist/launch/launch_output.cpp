#include "weft/dist/launch/launch_output.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

namespace weft::dist {
namespace {

constexpr size_t kLongestLine = 64 << 10;

}  // namespace

void LinePrefixer::feed(std::string_view bytes, std::string& out) {
  while (!bytes.empty()) {
    const size_t newline = bytes.find('\n');
    const size_t length = newline == std::string_view::npos ? bytes.size() : newline;
    const size_t room = kLongestLine - line_.size();
    const size_t taken = std::min(length, room);
    line_ += bytes.substr(0, taken);
    const bool ended = newline != std::string_view::npos && taken == length;
    if (ended || line_.size() == kLongestLine) {
      out += prefix_ + line_ + '\n';
      line_.clear();
    }
    bytes.remove_prefix(taken + (ended ? 1 : 0));
  }
}

void LinePrefixer::finish(std::string& out) {
  if (line_.empty()) return;
  out += prefix_ + line_ + '\n';
  line_.clear();
}

void OutputSink::add(std::string_view text) {
  if (!is_broken()) pending_ += text;
}

void OutputSink::write_some() {
  // A pipe that poll calls writable takes this much without blocking (pipe(7), PIPE_BUF).
  const size_t length = std::min<size_t>(pending_.size(), PIPE_BUF);
  const ssize_t written = ::write(fd_, pending_.data(), length);
  if (written >= 0) {
    pending_.erase(0, static_cast<size_t>(written));
  } else if (errno != EAGAIN && errno != EINTR) {
    error_ = errno;
    pending_.clear();
  }
}

void OutputSink::flush() {
  while (has_pending()) {
    pollfd ready{fd_, POLLOUT, 0};
    if (::poll(&ready, 1, -1) < 0 && errno != EINTR) return;
    write_some();
  }
}

}  // namespace weft::dist
