#include "weft/dist/launch/rank_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <string_view>

#include "weft/core/error.h"
#include "weft/dist/launch/process.h"

namespace weft::dist {
namespace {

// Arguments and environment as exec wants them; built before fork, which may not allocate after.
class ExecImage {
 public:
  explicit ExecImage(const SpawnRequest& request) : arguments_(request.command) {
    for (char** entry = environ; *entry != nullptr; ++entry) {
      if (!is_overridden(*entry, request)) variables_.emplace_back(*entry);
    }
    for (const auto& [name, value] : request.variables) variables_.push_back(name + "=" + value);
    for (auto& text : arguments_) argv_.push_back(text.data());
    for (auto& text : variables_) envp_.push_back(text.data());
    argv_.push_back(nullptr);
    envp_.push_back(nullptr);
  }

  void exec() { execvpe(argv_[0], argv_.data(), envp_.data()); }

 private:
  static bool is_overridden(std::string_view entry, const SpawnRequest& request) {
    const std::string_view name = entry.substr(0, entry.find('='));
    for (const auto& variable : request.variables) {
      if (variable.first == name) return true;
    }
    return false;
  }

  std::vector<std::string> arguments_;
  std::vector<std::string> variables_;
  std::vector<char*> argv_;
  std::vector<char*> envp_;
};

// The numbers that a folder of /proc/self names.
std::vector<int> numbers_in(const char* folder) {
  std::vector<int> numbers;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    numbers.push_back(std::stoi(entry.path().filename().string()));
  }
  return numbers;
}

// Descriptors that exec would close.
void close_as_exec() {
  for (const int fd : numbers_in("/proc/self/fd")) {
    const int flags = fcntl(fd, F_GETFD);
    if (flags >= 0 && (flags & FD_CLOEXEC) != 0) close(fd);
  }
}

// As a program's main does. Nothing may unwind into what this is a copy of.
[[noreturn]] void run_body(const SpawnRequest& request) noexcept {
  close_as_exec();
  prctl(PR_SET_NAME, request.name.c_str());
  for (const auto& [name, value] : request.variables) setenv(name.c_str(), value.c_str(), 1);
  std::exit(request.body());
}

// Runs in the child: up to a body only calls that are safe between fork and exec.
[[noreturn]] void become_rank(const SpawnRequest& request, ExecImage* image, pid_t launcher,
                              int error_fd) {
  prctl(PR_SET_PDEATHSIG, request.death_signal);
  // The launcher may have died before the line above.
  if (getppid() != launcher) _exit(127);
  if (request.process_group >= 0) setpgid(0, request.process_group);
  signal(SIGPIPE, SIG_DFL);
  sigprocmask(SIG_SETMASK, &request.signal_mask, nullptr);
  if (request.stdin_fd >= 0) dup2(request.stdin_fd, STDIN_FILENO);
  if (request.stdout_fd >= 0) dup2(request.stdout_fd, STDOUT_FILENO);
  if (request.stderr_fd >= 0) dup2(request.stderr_fd, STDERR_FILENO);
  if (request.kept_fd >= 0) fcntl(request.kept_fd, F_SETFD, 0);
  if (image == nullptr) run_body(request);
  image->exec();
  const int error = errno;
  [[maybe_unused]] const ssize_t written = write(error_fd, &error, sizeof(error));
  _exit(127);
}

// The number of the error that exec failed with; 0 if it worked, which closes the pipe. A process
// that is stopped before it comes there is left to those who look after it.
int read_exec_error(int fd, pid_t pid) {
  constexpr int kLookPeriodMs = 100;
  pollfd readable{fd, POLLIN, 0};
  while (::poll(&readable, 1, kLookPeriodMs) <= 0) {
    if (is_stopped(pid)) return 0;
  }
  int error = 0;
  ssize_t length = 0;
  do {
    length = read(fd, &error, sizeof(error));
  } while (length < 0 && errno == EINTR);
  return length == sizeof(error) ? error : 0;
}

}  // namespace

std::pair<core::FileDescriptor, core::FileDescriptor> make_pipe() {
  int ends[2] = {-1, -1};
  if (pipe2(ends, O_CLOEXEC) != 0) core::fail_errno("weft launch", "pipe", errno);
  fcntl(ends[0], F_SETFL, O_NONBLOCK);
  return {core::FileDescriptor(ends[0]), core::FileDescriptor(ends[1])};
}

pid_t spawn_rank(const SpawnRequest& request) {
  ExecImage image(request);
  auto [error_read, error_write] = make_pipe();
  fcntl(error_read.get(), F_SETFL, 0);
  const pid_t launcher = getpid();
  // Others' locks would stay locked in a copy of this process.
  const bool is_copy = request.body != nullptr && numbers_in("/proc/self/task").size() == 1;
  if (is_copy) {
    // Nor may it write again what waits here.
    std::cout.flush();
    std::fflush(nullptr);
  }
  const pid_t pid = fork();
  if (pid < 0) core::fail_errno("weft launch", "fork", errno);
  if (pid == 0) become_rank(request, is_copy ? nullptr : &image, launcher, error_write.get());
  // Also here, so that the group exists whichever of the two runs first.
  if (request.process_group >= 0) setpgid(pid, request.process_group);
  error_write.reset();
  const int error = read_exec_error(error_read.get(), pid);
  if (error != 0) {
    waitpid(pid, nullptr, 0);
    core::fail<core::IoError>("weft launch: cannot start '", request.command[0],
                              "': ", std::strerror(error));
  }
  return pid;
}

}  // namespace weft::dist
