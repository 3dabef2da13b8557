#include <cstdlib>
#include <filesystem>

#include "weft/cli/flags.h"
#include "weft/cli/verbs/run.h"
#include "weft/core/error.h"
#include "weft/core/sha256.h"
#include "weft/dist/launch/process.h"
#include "weft/dist/launch/remote_launch.h"
#include "weft/dist/store/job_key.h"
#include "weft/dist/store/sockets.h"

namespace weft::cli {
namespace {

// As a POSIX shell reads back.
std::string shell_word(const std::string& word) {
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

// A port that another job on host 0 is not likely to have; below those that Linux gives away.
int drawn_port() {
  constexpr unsigned kFirst = 20'000;
  constexpr unsigned kCount = 12'000;
  const std::string bytes = core::random_bytes(2);
  const unsigned number =
      static_cast<unsigned char>(bytes[0]) * 256U + static_cast<unsigned char>(bytes[1]);
  return static_cast<int>(kFirst + number % kCount);
}

bool is_this_host(const std::string& name) {
  if (name == dist::host_name()) return true;
  std::string ignored;
  const auto own = dist::interface_addresses();
  for (const auto& address : dist::addresses_of(name, 0, ignored)) {
    if (address.is_loopback()) return true;
    for (const auto& each : own) {
      if (each.text() == address.text()) return true;
    }
  }
  return false;
}

// The launcher of host number `host`, in this folder and with the key from its stdin.
std::string launcher_on(const dist::LaunchOptions& options, size_t host, bool is_here) {
  const auto number = [](auto value) { return std::to_string(value); };
  std::string line = "cd " + shell_word(std::filesystem::current_path().string()) +
                     " && exec env -u WEFT_JOB_KEY WEFT_JOB_KEY_FILE=/dev/stdin";
  const char* const lifeline = host == 0 ? dist::kLifelineWithInput : "1";
  if (!is_here) line += core::join(" ", dist::kLifelineVariable, "=", lifeline);
  const char* const passed[] = {"WEFT_START_TIMEOUT_S", "WEFT_TIMEOUT_S",
                                "WEFT_HEARTBEAT_TIMEOUT_S", "WEFT_LOG_LEVEL", "OMP_NUM_THREADS"};
  for (const char* name : passed) {
    if (const char* value = std::getenv(name))
      line += " " + shell_word(std::string(name) + "=" + value);
  }
  Args words = {program_path(),
                "launch",
                "-n",
                number(options.num_ranks),
                "--hosts",
                number(options.host_names.size()),
                "--host",
                number(host),
                "--address",
                options.address,
                "--port",
                number(options.port),
                "--backend",
                options.backend,
                "--"};
  words.insert(words.end(), options.command.begin(), options.command.end());
  for (const std::string& word : words) line += " " + shell_word(word);
  return line;
}

int launch_by_ssh(dist::LaunchOptions options) {
  if (options.port == 0) options.port = drawn_port();
  dist::RemoteLaunch remote;
  remote.first_line = dist::job_key_from_env();
  if (remote.first_line.empty()) remote.first_line = dist::new_job_key();
  const char* ssh = std::getenv("WEFT_SSH");
  for (size_t host = 0; host < options.host_names.size(); ++host) {
    const std::string& name = options.host_names[host];
    const bool is_here = is_this_host(name);
    const std::string line = launcher_on(options, host, is_here);
    remote.is_remote.push_back(is_here ? 0 : 1);
    if (is_here) {
      remote.commands.push_back({"sh", "-c", line});
    } else {
      remote.commands.push_back({ssh == nullptr ? "ssh" : ssh, name, line});
    }
  }
  return dist::launch_remotely(remote);
}

}  // namespace

int run_launch(const dist::LaunchOptions& options) {
  return options.host_names.empty() ? dist::launch(options) : launch_by_ssh(options);
}

}  // namespace weft::cli
