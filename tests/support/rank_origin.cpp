#include "tests/support/rank_origin.h"

#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "weft/core/error.h"

namespace weft::test {
namespace {

using nlohmann::json;

// The test's end of the socket, or the origin's. Not buffered: what one process leaves unread or
// unwritten is not for its copies.
std::FILE* other_end = nullptr;

std::FILE* open_end(int fd) {
  std::FILE* file = fdopen(fd, "r+");
  core::check<core::IoError>(file != nullptr, "rank_origin: no stream for a socket");
  std::setvbuf(file, nullptr, _IONBF, 0);
  return file;
}

void send(const json& message) {
  const std::vector<uint8_t> bytes = json::to_msgpack(message);
  const uint64_t length = bytes.size();
  std::fwrite(&length, sizeof length, 1, other_end);
  std::fwrite(bytes.data(), 1, bytes.size(), other_end);
}

// Nothing once the other process has ended.
std::optional<json> receive() {
  uint64_t length = 0;
  if (std::fread(&length, sizeof length, 1, other_end) != 1) return std::nullopt;
  std::vector<uint8_t> bytes(length);
  if (std::fread(bytes.data(), 1, length, other_end) != length) return std::nullopt;
  return json::from_msgpack(bytes);
}

// Without what is said to the test framework: a rank's arguments say what it is to do.
std::vector<std::string> environment() {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!std::string_view(*entry).starts_with("GTEST_")) entries.emplace_back(*entry);
  }
  return entries;
}

void replace_environment(const std::vector<std::string>& entries) {
  clearenv();
  for (const std::string& entry : entries) {
    const size_t equals = entry.find('=');
    setenv(entry.substr(0, equals).c_str(), entry.substr(equals + 1).c_str(), 1);
  }
}

CommandResult run_job(const json& request, const RankProgram& program) {
  dist::LaunchOptions job;
  job.num_ranks = request.at("ranks");
  job.backend = request.at("backend");
  job.command = request.at("command").get<std::vector<std::string>>();
  job.body = [&] { return program(job.command); };
  CommandOptions options;
  options.timeout = std::chrono::milliseconds(request.at("timeout_ms"));
  options.variables = request.at("variables").get<decltype(options.variables)>();
  const auto launch = [&] {
    std::fclose(other_end);
    return dist::launch(job);
  };
  replace_environment(request.at("environment").get<std::vector<std::string>>());
  return run_forked(launch, options);
}

[[noreturn]] void serve_jobs(const RankProgram& program) {
  while (const auto request = receive()) {
    const CommandResult result = run_job(*request, program);
    send({{"status", result.status},
          {"timed_out", result.timed_out},
          {"out", result.out},
          {"err", result.err}});
  }
  _exit(0);
}

}  // namespace

void start_rank_origin(const RankProgram& program) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    core::fail_errno("rank_origin", "socketpair", errno);
  }
  const pid_t parent = getpid();
  const pid_t origin = fork();
  if (origin < 0) core::fail_errno("rank_origin", "fork", errno);
  close(ends[origin == 0 ? 0 : 1]);
  other_end = open_end(ends[origin == 0 ? 1 : 0]);
  if (origin > 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(0);
  serve_jobs(program);
}

CommandResult run_from_origin(const dist::LaunchOptions& job, const CommandOptions& options) {
  send({{"ranks", job.num_ranks},
        {"backend", job.backend},
        {"command", job.command},
        {"environment", environment()},
        {"timeout_ms", options.timeout.count()},
        {"variables", options.variables}});
  const auto reply = receive();
  core::check<core::InternalError>(reply.has_value(), "run_ranks: the ranks' origin has ended");
  return {reply->at("status"), reply->at("timed_out"), reply->at("out"), reply->at("err")};
}

}  // namespace weft::test
