#include "tests/support/run_command.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "weft/core/error.h"
#include "weft/core/files/file.h"

namespace weft::test {
namespace {

using core::FileDescriptor;

// A file that is gone when closed and holds `text`: input of any size without a writer thread.
FileDescriptor file_with(const std::string& text) {
  std::FILE* file = std::tmpfile();
  if (file == nullptr) core::fail_errno("run_command", "temporary file", errno);
  std::fwrite(text.data(), 1, text.size(), file);
  std::fflush(file);
  FileDescriptor fd(dup(fileno(file)));
  std::fclose(file);
  lseek(fd.get(), 0, SEEK_SET);
  return fd;
}

std::array<FileDescriptor, 2> open_pipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) core::fail_errno("run_command", "pipe", errno);
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

[[noreturn]] void run_child(const std::function<int()>& body, const CommandOptions& options) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setpgid(0, 0);
  // Shells start what runs in the background with these ignored.
  signal(SIGINT, SIG_DFL);
  signal(SIGHUP, SIG_DFL);
  for (const auto& [name, value] : options.variables) {
    setenv(name.c_str(), value.c_str(), 1);
  }
  int status = 126;
  try {
    status = body();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  std::fflush(nullptr);
  _exit(status);
}

std::function<int()> execute(const std::vector<std::string>& command) {
  return [command] {
    std::vector<char*> arguments;
    for (const auto& text : command) arguments.push_back(const_cast<char*>(text.c_str()));
    arguments.push_back(nullptr);
    execvp(arguments[0], arguments.data());
    std::fprintf(stderr, "cannot start %s: %s\n", arguments[0], std::strerror(errno));
    return 127;
  };
}

}  // namespace

CommandResult run_command(const std::vector<std::string>& command, const CommandOptions& options) {
  return BackgroundCommand(command, options).finish();
}

CommandResult run_forked(const std::function<int()>& body, const CommandOptions& options) {
  return BackgroundCommand(body, options).finish();
}

BackgroundCommand::BackgroundCommand(const std::vector<std::string>& command,
                                     const CommandOptions& options) {
  start(execute(command), options);
}

BackgroundCommand::BackgroundCommand(const std::function<int()>& body,
                                     const CommandOptions& options) {
  start(body, options);
}

void BackgroundCommand::start(const std::function<int()>& body, const CommandOptions& options) {
  deadline_ = Clock::now() + options.timeout;
  const FileDescriptor input = file_with(options.input);
  auto out = open_pipe();
  auto err = open_pipe();
  std::fflush(nullptr);
  pid_ = fork();
  if (pid_ < 0) core::fail_errno("run_command", "fork", errno);
  if (pid_ == 0) {
    dup2(input.get(), STDIN_FILENO);
    dup2(out[1].get(), STDOUT_FILENO);
    dup2(err[1].get(), STDERR_FILENO);
    run_child(body, options);
  }
  setpgid(pid_, pid_);
  out_fd_ = out[0].release();
  err_fd_ = err[0].release();
}

BackgroundCommand::~BackgroundCommand() {
  if (pid_ > 0) {
    kill(-pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  close_streams();
}

void BackgroundCommand::signal(int number) const { kill(pid_, number); }

void BackgroundCommand::close_streams() {
  for (int* fd : {&out_fd_, &err_fd_}) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
  }
}

// False once both streams have ended or the time is over.
bool BackgroundCommand::read_some() {
  if (out_fd_ < 0 && err_fd_ < 0) return false;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline_ - Clock::now());
  if (left.count() <= 0) {
    result_.timed_out = true;
    return false;
  }
  std::array<pollfd, 2> polled = {{{out_fd_, POLLIN, 0}, {err_fd_, POLLIN, 0}}};
  poll(polled.data(), polled.size(), static_cast<int>(left.count()));
  const std::array<std::pair<int*, std::string*>, 2> streams = {
      {{&out_fd_, &result_.out}, {&err_fd_, &result_.err}}};
  for (size_t i = 0; i < streams.size(); ++i) {
    if (polled[i].revents == 0) continue;
    auto [fd, text] = streams[i];
    std::array<char, 1 << 16> bytes;
    const ssize_t length = read(*fd, bytes.data(), bytes.size());
    if (length > 0) {
      text->append(bytes.data(), static_cast<size_t>(length));
    } else if (length == 0 || errno != EINTR) {
      close(*fd);
      *fd = -1;
    }
  }
  return true;
}

bool BackgroundCommand::wait_for_output(const std::string& text) {
  const auto found = [&] {
    return result_.out.find(text) != std::string::npos ||
           result_.err.find(text) != std::string::npos;
  };
  while (!found()) {
    if (!read_some()) return found();
  }
  return true;
}

CommandResult BackgroundCommand::finish() {
  while (read_some()) {
  }
  if (result_.timed_out) kill(-pid_, SIGKILL);
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  result_.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  close_streams();
  return result_;
}

}  // namespace weft::test
