#include "weft/dist/rendezvous/launcher_watch.h"

#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <string_view>

#include "weft/core/files/file.h"

namespace weft::dist {
namespace {

// Linux's number of the first set of process numbers (PROC_PID_INIT_INO).
constexpr ino_t kFirstProcessSpace = 0xEFFFFFFC;

// The process of Open MPI that started the ranks of this host, by the name of the folder that it
// has made here; 0: not known. In a container of its own a rank has other process numbers.
pid_t openmpi_daemon() {
  struct stat space = {};
  const bool sees_all =
      ::stat("/proc/self/ns/pid", &space) == 0 && space.st_ino == kFirstProcessSpace;
  const char* folder = std::getenv("PMIX_SERVER_TMPDIR");
  if (!sees_all || folder == nullptr || ::access(folder, F_OK) != 0) return 0;
  constexpr std::string_view kPrefix = "/pid.";
  const std::string_view path = folder;
  const size_t at = path.rfind(kPrefix);
  if (at == std::string_view::npos) return 0;
  pid_t pid = 0;
  const char* first = path.data() + at + kPrefix.size();
  const auto [end, error] = std::from_chars(first, path.data() + path.size(), pid);
  return error == std::errc() && end == path.data() + path.size() && pid > 0 ? pid : 0;
}

class LauncherWatch {
 public:
  void begin() {
    const std::lock_guard lock(mutex_);
    if (parent_ != 0) return;
    parent_ = ::getppid();
    const pid_t daemon = openmpi_daemon();
    if (daemon == 0) return;
    daemon_ = core::FileDescriptor(static_cast<int>(::syscall(SYS_pidfd_open, daemon, 0)));
    has_ended_ = !daemon_.is_open() && errno == ESRCH;
  }

  void look() {
    const std::lock_guard lock(mutex_);
    if (parent_ == 0 || is_told_) return;
    pollfd ended = {daemon_.get(), POLLIN, 0};
    const bool is_daemon_gone = daemon_.is_open() && ::poll(&ended, 1, 0) > 0;
    if (!has_ended_ && !is_daemon_gone && ::getppid() == parent_) return;
    is_told_ = true;
    ::kill(::getpid(), SIGTERM);
  }

 private:
  std::mutex mutex_;
  pid_t parent_ = 0;
  core::FileDescriptor daemon_;
  bool has_ended_ = false, is_told_ = false;
};

LauncherWatch& launcher_watch() {
  static LauncherWatch watch;
  return watch;
}

}  // namespace

void end_with_launcher() { launcher_watch().begin(); }

void look_after_launcher() { launcher_watch().look(); }

}  // namespace weft::dist
