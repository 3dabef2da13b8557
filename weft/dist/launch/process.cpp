#include "weft/dist/launch/process.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "weft/core/error.h"

namespace weft::dist {
namespace {

struct ProcessStat {
  std::string name;
  std::string state;
  pid_t parent = 0;
  uint64_t start_time = 0;
};

// The name is in parentheses and may contain spaces and parentheses itself.
bool read_stat(pid_t pid, ProcessStat& stat) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  if (!std::getline(file, text)) return false;
  const size_t open = text.find('(');
  const size_t close = text.rfind(')');
  if (open == std::string::npos || close == std::string::npos || close < open) return false;
  stat.name = text.substr(open + 1, close - open - 1);
  std::istringstream fields(text.substr(close + 1));
  fields >> stat.state >> stat.parent;
  constexpr int kFieldsBetween = 17;  // from field 5 up to field 21
  std::string skipped;
  for (int i = 0; i < kFieldsBetween; ++i) fields >> skipped;
  fields >> stat.start_time;
  return !fields.fail();
}

}  // namespace

uint64_t process_start_time(pid_t pid) {
  ProcessStat stat;
  return read_stat(pid, stat) ? stat.start_time : 0;
}

bool is_stopped(pid_t pid) {
  ProcessStat stat;
  return read_stat(pid, stat) && stat.state == "T";
}

pid_t find_ancestor(std::string_view name) {
  ProcessStat stat;
  for (pid_t pid = getppid(); pid > 1; pid = stat.parent) {
    if (!read_stat(pid, stat)) return 0;
    if (stat.name == name) return pid;
  }
  return 0;
}

core::FileDescriptor open_descriptor_of(pid_t pid, int number, uint64_t device, uint64_t inode) {
  const std::string path = core::join("/proc/", pid, "/fd/", number);
  struct stat info {};
  const bool is_there = ::stat(path.c_str(), &info) == 0;
  if (!is_there || info.st_dev != device || info.st_ino != inode) return core::FileDescriptor();
  return core::FileDescriptor(::open(path.c_str(), O_RDWR | O_CLOEXEC));
}

std::string host_name() {
  if (const char* chosen = std::getenv("WEFT_HOST")) return chosen;
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

std::string short_hash(std::string_view text) {
  uint64_t hash = 14695981039346656037ULL;
  for (const char c : text) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 1099511628211ULL;
  }
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string digits(16, '0');
  for (size_t i = 0; i < digits.size(); ++i) {
    digits[i] = kDigits[(hash >> (60 - 4 * i)) & 0xf];
  }
  return digits;
}

std::string signal_name(int signal_number) {
  const char* name = sigabbrev_np(signal_number);
  if (name == nullptr) return "signal " + std::to_string(signal_number);
  return std::string("SIG") + name;
}

int available_cpus() {
  cpu_set_t cpus;
  if (sched_getaffinity(0, sizeof(cpus), &cpus) != 0) return 1;
  return CPU_COUNT(&cpus);
}

}  // namespace weft::dist
