#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "weft/core/files/file.h"

namespace weft::cli {

/// The state letter and parent of a process, as /proc/PID/stat has them; 'X' once it is gone.
struct ProcessState {
  char state = 'X';
  int parent = 0;
};

inline ProcessState process_state(int pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string text((std::istreambuf_iterator<char>(stat)), {});
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return {};
  return {text[name_end + 2], std::stoi(text.substr(name_end + 4))};
}

/// The processes that `parent` has started and that are there.
inline std::vector<int> children_of(int parent) {
  std::vector<int> children;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string id = entry.path().filename();
    if (id.find_first_not_of("0123456789") != std::string::npos) continue;
    if (process_state(std::stoi(id)).parent == parent) children.push_back(std::stoi(id));
  }
  return children;
}

/// The rank that a process is, of those that weft has started; empty for others.
inline std::string rank_of(const std::filesystem::path& process) {
  // A copy of its launcher has a name of its own, a program that was started has the variable.
  constexpr std::string_view kName = "weft rank ";
  constexpr std::string_view kVariable = "WEFT_RANK=";
  std::string name;
  std::ifstream comm(process / "comm");
  std::getline(comm, name);
  if (name.starts_with(kName)) return name.substr(kName.size());
  std::ifstream environment(process / "environ");
  for (std::string item; std::getline(environment, item, '\0');) {
    if (item.starts_with(kVariable)) return item.substr(kVariable.size());
  }
  return "";
}

/// The ranks that the process `launcher` has started: rank to process id.
inline std::map<std::string, int> ranks_of(int launcher) {
  std::map<std::string, int> ranks;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string id = entry.path().filename();
    if (id.find_first_not_of("0123456789") != std::string::npos) continue;
    const int pid = std::stoi(id);
    if (process_state(pid).parent != launcher) continue;
    const std::string rank = rank_of(entry.path());
    if (!rank.empty()) ranks[rank] = pid;
  }
  return ranks;
}

/// Waits until the process has a handler of its own for a signal.
inline bool handles_soon(int pid, int number) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (std::chrono::steady_clock::now() < deadline) {
    std::ifstream status("/proc/" + std::to_string(pid) + "/status");
    for (std::string line; std::getline(status, line);) {
      if (!line.starts_with("SigCgt:")) continue;
      if ((std::stoull(line.substr(7), nullptr, 16) >> (number - 1) & 1) != 0) return true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return false;
}

/// Waits until the process has ended (a parent that does not ask for its status may be left).
inline bool ends_soon(int pid) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (std::chrono::steady_clock::now() < deadline) {
    const char state = process_state(pid).state;
    if (state == 'X' || state == 'Z') return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return false;
}

/// A port of 127.0.0.1 that is listened on as long as this lives.
class UsedPort {
 public:
  UsedPort() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    const bool is_open = ::bind(socket_.get(), generic, size) == 0 &&
                         ::listen(socket_.get(), 1) == 0 &&
                         ::getsockname(socket_.get(), generic, &size) == 0;
    if (!is_open) throw std::runtime_error("no port of 127.0.0.1 could be opened");
    text_ = std::to_string(ntohs(address.sin_port));
  }
  const std::string& text() const { return text_; }

 private:
  core::FileDescriptor socket_;
  std::string text_;
};

/// A port that nobody listens on for now.
inline std::string free_port() { return UsedPort().text(); }

}  // namespace weft::cli
