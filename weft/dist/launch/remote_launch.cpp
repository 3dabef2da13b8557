#include "weft/dist/launch/remote_launch.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <set>
#include <tuple>
#include <utility>

#include "weft/core/error.h"
#include "weft/dist/launch/job.h"
#include "weft/dist/launch/rank_process.h"

namespace weft::dist {
namespace {

// Errors are said once for all hosts: each launcher says them.
class SharedErrors {
 public:
  void feed(std::string_view bytes, std::string& out) {
    rest_ += bytes;
    for (size_t end = rest_.find('\n'); end != std::string::npos; end = rest_.find('\n')) {
      const std::string line = rest_.substr(0, end + 1);
      rest_.erase(0, end + 1);
      const bool is_error = line.find("Error: ") != std::string::npos;
      if (!is_error || said().insert(line).second) out += line;
    }
  }

  std::string rest() { return std::move(rest_); }

 private:
  static std::set<std::string>& said() {
    static std::set<std::string> lines;
    return lines;
  }

  std::string rest_;
};

using Clock = std::chrono::steady_clock;

struct RemoteHost {
  pid_t pid = 0;
  core::FileDescriptor input;
  OutputSink given{-1};
  /// When it last took some of what it was given, or had nothing left to take.
  Clock::time_point took_at = Clock::now();
  /// Its input ends with what is given already.
  bool has_all = false;
  core::FileDescriptor errors;
  SharedErrors lines;
  bool is_remote = false;
};

class RemoteHosts {
 public:
  explicit RemoteHosts(const RemoteLaunch& launch) : hosts_(launch.commands.size()) {
    for (size_t i = 0; i < hosts_.size(); ++i) start(hosts_[i], launch.commands[i]);
    for (RemoteHost& host : hosts_) host.given.add(launch.first_line + "\n");
    for (size_t i = 0; i < hosts_.size(); ++i) {
      hosts_[i].is_remote = launch.is_remote[i] != 0;
      hosts_[i].has_all = i > 0 && !hosts_[i].is_remote;
    }
  }

  int run() {
    while (alive_ > 0) {
      wait_for_events();
      pass_signals();
      reap();
    }
    for (RemoteHost& host : hosts_) errors_.add(host.lines.rest());
    errors_.flush();
    return status_;
  }

 private:
  void start(RemoteHost& host, const std::vector<std::string>& command) {
    auto [input_read, input_write] = make_pipe();
    auto [errors_read, errors_write] = make_pipe();
    SpawnRequest request;
    request.command = command;
    // Programs read it, and expect to wait there for what comes later.
    fcntl(input_read.get(), F_SETFL, 0);
    request.stdin_fd = input_read.get();
    request.stderr_fd = errors_write.get();
    request.death_signal = SIGTERM;
    // In a terminal Ctrl-C would end ssh, and with it all that the other hosts have to say.
    request.process_group = 0;
    request.signal_mask = signals_.former_mask();
    host.pid = spawn_rank(request);
    host.input = std::move(input_write);
    host.given = OutputSink(host.input.get());
    host.errors = std::move(errors_read);
    ++alive_;
  }

  // A host that does not read keeps nobody from the signals and the other hosts' errors: nothing
  // more is read from stdin until it has what was read before.
  void wait_for_events() {
    const RemoteHost& first = hosts_.front();
    const bool takes_more = first.input.is_open() && !typed_all_ && !first.given.has_pending();
    std::vector<pollfd> polled = {{signals_.fd(), POLLIN, 0},
                                  {takes_more ? STDIN_FILENO : -1, POLLIN, 0}};
    for (const RemoteHost& host : hosts_) {
      polled.push_back({host.errors.get(), POLLIN, 0});
      polled.push_back({host.given.has_pending() ? host.input.get() : -1, POLLOUT, 0});
    }
    constexpr int kLookMs = 500;
    if (::poll(polled.data(), polled.size(), kLookMs) <= 0) return;
    if (polled[1].revents != 0) pass_input();
    for (size_t i = 0; i < hosts_.size(); ++i) {
      if (polled[2 * i + 2].revents != 0) pass_errors(hosts_[i]);
      if (polled[2 * i + 3].revents != 0) pass_on(hosts_[i]);
    }
  }

  static void pass_on(RemoteHost& host) {
    host.given.write_some();
    host.took_at = Clock::now();
    close_if_done(host);
  }

  static void close_if_done(RemoteHost& host) {
    const bool is_done = host.has_all && !host.given.has_pending();
    if (is_done || host.given.is_broken()) host.input.reset();
  }

  void pass_input() {
    std::array<char, 4096> bytes;
    const ssize_t got = read(STDIN_FILENO, bytes.data(), bytes.size());
    if (got < 0) return;
    RemoteHost& first = hosts_.front();
    const std::string_view typed(bytes.data(), static_cast<size_t>(got));
    first.took_at = Clock::now();
    first.given.add(first.is_remote ? RelayedInput::piece_of(typed) : std::string(typed));
    typed_all_ = typed.empty();
    first.has_all = typed_all_ && !first.is_remote;
    close_if_done(first);
  }

  void pass_errors(RemoteHost& host) {
    std::array<char, 16 << 10> bytes;
    const ssize_t got = read(host.errors.get(), bytes.data(), bytes.size());
    if (got == 0) host.errors.reset();
    if (got <= 0) return;
    std::string text;
    host.lines.feed({bytes.data(), static_cast<size_t>(got)}, text);
    errors_.add(text);
    errors_.flush();
  }

  void pass_signals() {
    while (const auto info = signals_.next()) {
      if (info->si_signo == SIGCHLD) continue;
      const bool is_again = std::exchange(was_asked_, true);
      for (RemoteHost& host : hosts_) {
        const bool is_told = !host.is_remote || is_again || is_clogged(host);
        if (host.pid != 0 && is_told) kill(host.pid, info->si_signo);
        if (host.is_remote) end_input(host);
      }
    }
  }

  // The end of its input would come after all that waits on the way there.
  static bool is_clogged(const RemoteHost& host) {
    constexpr auto kPatience = std::chrono::seconds(2);
    return host.given.has_pending() && Clock::now() - host.took_at > kPatience;
  }

  // Now, whatever was still to come.
  static void end_input(RemoteHost& host) {
    host.given = OutputSink(-1);
    host.input.reset();
  }

  void reap() {
    for (RemoteHost& host : hosts_) {
      int ended = 0;
      if (host.pid == 0 || waitpid(host.pid, &ended, WNOHANG) != host.pid) continue;
      host.pid = 0;
      --alive_;
      while (host.errors.is_open() && is_readable(host)) pass_errors(host);
      const int status = WIFEXITED(ended) ? WEXITSTATUS(ended) : 128 + WTERMSIG(ended);
      if (status_ == 0) status_ = status;
    }
  }

  static bool is_readable(const RemoteHost& host) {
    pollfd polled{host.errors.get(), POLLIN, 0};
    return ::poll(&polled, 1, 0) > 0;
  }

  SignalReader signals_;
  std::vector<RemoteHost> hosts_;
  OutputSink errors_{STDERR_FILENO};
  int alive_ = 0;
  bool typed_all_ = false;
  bool was_asked_ = false;
  int status_ = 0;
};

}  // namespace

std::unique_ptr<RelayedInput> RelayedInput::from_env() {
  const char* text = std::getenv("WEFT_LAUNCH_LIFELINE");
  const bool is_relayed = text != nullptr && std::string_view(text) == kLifelineWithInput;
  return is_relayed ? std::make_unique<RelayedInput>() : nullptr;
}

std::string RelayedInput::piece_of(std::string_view bytes) {
  return core::join(bytes.size(), '\n', bytes);
}

RelayedInput::RelayedInput() {
  std::tie(reader_, writer_) = make_pipe();
  fcntl(reader_.get(), F_SETFL, 0);
  sink_ = OutputSink(writer_.get());
}

void RelayedInput::feed(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::string_view part = bytes.substr(0, left_ > 0 ? left_ : 1);
    bytes.remove_prefix(part.size());
    if (left_ > 0) {
      left_ -= part.size();
      if (!has_all_) sink_.add(part);
    } else if (part != "\n") {
      length_ += part;
    } else {
      // What is no number ends the input, as nothing after it could be told apart.
      std::from_chars(length_.data(), length_.data() + length_.size(), left_);
      length_.clear();
      has_all_ = has_all_ || left_ == 0;
    }
  }
  close_if_done();
}

void RelayedInput::write_some() {
  sink_.write_some();
  close_if_done();
}

void RelayedInput::close_if_done() {
  if (sink_.is_broken() || (has_all_ && !sink_.has_pending())) writer_.reset();
}

int launch_remotely(const RemoteLaunch& launch) {
  core::check<core::ConfigError>(!launch.commands.empty(),
                                 "weft launch: hosts: expected at least one, got none");
  return RemoteHosts(launch).run();
}

}  // namespace weft::dist
