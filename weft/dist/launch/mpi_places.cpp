#include "weft/dist/launch/mpi_places.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <string_view>
#include <thread>

#include "weft/core/error.h"
#include "weft/dist/launch/rank_process.h"

namespace weft::dist {
namespace {

using namespace std::chrono_literals;
using core::check;
using core::IoError;
using Clock = std::chrono::steady_clock;

constexpr auto kStartTime = 30s;
constexpr auto kEndTime = 2s;

// A placeholder: writes its variables, each ended by a zero byte, and one zero byte more into its
// rank's pipe, and stays until the launcher lets it go. $1 and $2 are the launcher's process and
// the pipe that it stays for, the rest are the ranks' pipes.
constexpr const char* kPlaceholder =
    "exec 2>/dev/null; folder=/proc/$1/fd stay=$2; shift 2; "
    "shift \"${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-$PMI_ID}}\"; "
    "{ env -0; printf '\\0'; } >\"$folder/$1\"; read -r line <\"$folder/$stay\"; exit 0";

std::string mpirun_path() {
  const char* chosen = std::getenv("WEFT_MPIRUN");
  return chosen != nullptr ? chosen : WEFT_MPIRUN;
}

// The ranks may be more than processors and go where they like. The end of one is the launcher's
// matter, not mpirun's.
std::vector<std::string> mpirun_command(int num_ranks) {
  std::vector<std::string> command = {mpirun_path()};
  const bool is_openmpi = std::string_view(WEFT_MPI_KIND) == "openmpi";
  const auto options = is_openmpi ? std::vector<std::string>{"--oversubscribe", "--bind-to", "none",
                                                             "--enable-recovery"}
                                  : std::vector<std::string>{"-pmi-port", "-disable-auto-cleanup"};
  command.insert(command.end(), options.begin(), options.end());
  command.insert(command.end(), {"-n", std::to_string(num_ranks), "sh", "-c", kPlaceholder, "sh",
                                 std::to_string(getpid())});
  return command;
}

// What mpirun has set and a shell has not, as far as it differs from our own.
MpiPlaces::Variables parse_variables(std::string_view text) {
  MpiPlaces::Variables variables;
  while (!text.empty()) {
    const size_t end = text.find('\0');
    const std::string_view entry = text.substr(0, end);
    text.remove_prefix(end + 1);
    const size_t equals = entry.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string name(entry.substr(0, equals));
    const std::string value(entry.substr(equals + 1));
    if (name == "_" || name == "PWD" || name == "OLDPWD" || name == "SHLVL") continue;
    const char* own = std::getenv(name.c_str());
    if (own == nullptr || own != value) variables.emplace_back(name, value);
  }
  return variables;
}

// False once all is read.
bool read_some(int fd, std::string& text) {
  std::array<char, 16 << 10> bytes;
  const ssize_t length = read(fd, bytes.data(), bytes.size());
  if (length > 0) text.append(bytes.data(), static_cast<size_t>(length));
  return !text.ends_with(std::string_view("\0\0", 2));
}

}  // namespace

MpiPlaces::MpiPlaces(int num_ranks, const sigset_t& signal_mask)
    : variables_(static_cast<size_t>(num_ranks)),
      stay_(make_pipe()),
      log_(memfd_create("weft-mpirun", MFD_CLOEXEC)) {
  check<IoError>(access(mpirun_path().c_str(), X_OK) == 0, "weft launch: backend mpi: expected ",
                 mpirun_path(), " to start the ranks, got nothing there; install openmpi-bin, or ",
                 "name an mpirun of ", WEFT_MPI_KIND, " in WEFT_MPIRUN");
  for (int rank = 0; rank < num_ranks; ++rank) {
    auto [reader, writer] = make_pipe();
    readers_.push_back(std::move(reader));
    writers_.push_back(std::move(writer));
  }
  start(signal_mask);
  read_variables();
}

MpiPlaces::~MpiPlaces() {
  stay_.second.reset();
  const auto deadline = Clock::now() + kEndTime;
  while (!has_ended()) {
    if (Clock::now() > deadline) {
      kill(-pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
      return;
    }
    std::this_thread::sleep_for(5ms);
  }
}

void MpiPlaces::start(const sigset_t& signal_mask) {
  SpawnRequest request;
  request.command = mpirun_command(static_cast<int>(variables_.size()));
  request.command.push_back(std::to_string(stay_.first.get()));
  for (const auto& writer : writers_) request.command.push_back(std::to_string(writer.get()));
  // Open MPI refuses root without these.
  if (geteuid() == 0) {
    request.variables = {{"OMPI_ALLOW_RUN_AS_ROOT", "1"}, {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}};
  }
  const core::FileDescriptor null(open("/dev/null", O_RDWR | O_CLOEXEC));
  request.stdin_fd = null.get();
  request.stdout_fd = log_.get();
  request.stderr_fd = log_.get();
  // Of its own, so that Ctrl-C in a terminal goes to the ranks first. A signal that it can catch
  // lets mpirun remove its files.
  request.process_group = 0;
  request.death_signal = SIGTERM;
  request.signal_mask = signal_mask;
  pid_ = spawn_rank(request);
}

void MpiPlaces::read_variables() {
  const auto deadline = Clock::now() + kStartTime;
  for (size_t rank = 0; rank < readers_.size(); ++rank) {
    std::string text;
    while (read_some(readers_[rank].get(), text)) {
      if (Clock::now() > deadline || has_ended()) fail_start();
      pollfd ready{readers_[rank].get(), POLLIN, 0};
      ::poll(&ready, 1, 20);
    }
    variables_[rank] = parse_variables(text);
  }
  readers_.clear();
  writers_.clear();
}

bool MpiPlaces::has_ended() const {
  siginfo_t info{};
  const int code = waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG);
  return code != 0 || info.si_pid == pid_;
}

// The first line in mpirun's frame of dashes says what is wrong.
void MpiPlaces::fail_start() const {
  std::string text(1 << 14, '\0');
  const ssize_t length = pread(log_.get(), text.data(), text.size(), 0);
  text.resize(static_cast<size_t>(std::max<ssize_t>(length, 0)));
  std::string reason;
  for (size_t start = 0; start < text.size() && reason.empty();) {
    const size_t end = std::min(text.find('\n', start), text.size());
    const std::string line = text.substr(start, end - start);
    if (line.find_first_not_of("-= \t") != std::string::npos) reason = line;
    start = end + 1;
  }
  if (!has_ended()) kill(-pid_, SIGKILL);
  core::fail<IoError>("weft launch: backend mpi: ", mpirun_path(), " did not start ",
                      variables_.size(), " ranks: ", reason.empty() ? "it said nothing" : reason);
}

}  // namespace weft::dist
