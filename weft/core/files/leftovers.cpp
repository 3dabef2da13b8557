#include "weft/core/files/leftovers.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

#include "weft/core/error.h"
#include "weft/core/files/file.h"

namespace weft::core {
namespace {

namespace fs = std::filesystem;

constexpr char kEnding[] = ".tmp-";

// The process that the name's ending tells; nothing if it is no temporary name of `base`.
std::optional<pid_t> writer_of(const std::string& name, const std::string& base) {
  if (!name.starts_with(base)) return std::nullopt;
  pid_t pid = 0;
  const char* end = name.data() + name.size();
  const auto parsed = std::from_chars(name.data() + base.size(), end, pid);
  if (parsed.ec != std::errc() || parsed.ptr != end || pid <= 0) return std::nullopt;
  return pid;
}

struct ProcessState {
  bool has_ended = false;
  double start_seconds = 0;
};

// What /proc tells of the process, its start in seconds of the clock that files have; nothing where
// the system hides it. Field 22 of /proc/PID/stat counts ticks since the system's start. The state
// (field 3) is Z for a process that has ended and whose parent has not yet asked how: its number is
// still taken, but it writes no more.
std::optional<ProcessState> state_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  std::istringstream fields(text.substr(std::min(text.rfind(')'), text.size())));
  std::string skipped, state;
  fields >> skipped >> state;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  double ticks = 0;
  if (!(fields >> ticks)) return std::nullopt;
  timespec now = {}, since_start = {};
  ::clock_gettime(CLOCK_REALTIME, &now);
  ::clock_gettime(CLOCK_BOOTTIME, &since_start);
  return ProcessState{state == "Z" || state == "X",
                      static_cast<double>(now.tv_sec - since_start.tv_sec) +
                          ticks / static_cast<double>(::sysconf(_SC_CLK_TCK))};
}

// Numbers of processes are used again: one that began after the file's last change is another.
bool may_be_written_by(const std::string& path, pid_t writer) {
  if (::kill(writer, 0) != 0 && errno != EPERM) return false;
  constexpr double kInexact = 2;
  struct stat info = {};
  const auto process = state_of(writer);
  if (!process) return true;
  return !process->has_ended &&
         (::lstat(path.c_str(), &info) != 0 ||
          process->start_seconds < static_cast<double>(info.st_mtim.tv_sec) + kInexact);
}

// A process of another container or host has a number of its own, and holds what it writes.
bool is_abandoned(const std::string& path, pid_t writer) {
  if (writer != ::getpid() && may_be_written_by(path, writer)) return false;
  const FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
  if (!fd.is_open()) return errno == ELOOP;
  return ::flock(fd.get(), LOCK_EX | LOCK_NB) == 0;
}

}  // namespace

std::string temporary_name(const std::string& path) { return join(path, kEnding, ::getpid()); }

void hold_temporary(int descriptor) { static_cast<void>(::flock(descriptor, LOCK_EX | LOCK_NB)); }

void remove_leftovers(const std::string& path) {
  const fs::path target(path);
  const fs::path folder = target.has_parent_path() ? target.parent_path() : ".";
  const std::string base = target.filename().string() + kEnding;
  std::error_code error;
  std::vector<fs::path> found;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const auto writer = writer_of(entry->path().filename().string(), base);
    if (writer && is_abandoned(entry->path().string(), *writer)) found.push_back(entry->path());
  }
  for (const fs::path& each : found) fs::remove_all(each, error);
}

}  // namespace weft::core
