#include "weft/dist/launch/job.h"

#include <fcntl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <random>

#include "weft/core/error.h"
#include "weft/dist/launch/process.h"
#include "weft/dist/launch/rank_process.h"
#include "weft/dist/launch/shm_names.h"
#include "weft/dist/rendezvous/limits.h"
#include "weft/dist/rendezvous/rendezvous.h"
#include "weft/dist/store/server.h"

namespace weft::dist {
namespace {

using namespace std::chrono_literals;

// Others may be about to report the same error, or to notice the dead rank by themselves.
constexpr auto kSettleTime = 500ms;
constexpr auto kCheckPeriod = 500ms;

// All hosts must come to the same id; only one job at a time can meet at an address.
std::string new_job_id(const LaunchOptions& options) {
  if (options.num_hosts > 1) return core::join("weft-", options.address, "-", options.port);
  std::random_device random;
  return core::join("weft-", getpid(), "-", process_start_time(getpid()), "-", random());
}

// The name of host 0 may become known late, e.g. a pod's.
std::chrono::milliseconds patience_for(const LaunchOptions& options) {
  return options.num_hosts > 1 ? start_timeout_from_env() : 0ms;
}

bool has_lifeline() {
  const char* text = std::getenv("WEFT_LAUNCH_LIFELINE");
  return text != nullptr && *text != '\0';
}

}  // namespace

SignalReader::SignalReader() {
  sigset_t handled;
  sigemptyset(&handled);
  for (const int number : {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2}) {
    struct sigaction former {};
    sigaction(number, nullptr, &former);
    // What is to be ignored, as nohup has it, would be read from the descriptor all the same.
    const bool is_ignored = former.sa_handler == SIG_IGN && number != SIGCHLD;
    if (!is_ignored) sigaddset(&handled, number);
  }
  sigprocmask(SIG_BLOCK, &handled, &former_);
  struct sigaction action {};
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, &former_pipe_);
  action.sa_handler = SIG_DFL;  // an inherited SIG_IGN would reap the ranks behind our back
  sigaction(SIGCHLD, &action, &former_child_);
  fd_ = core::FileDescriptor(signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd_.is_open()) core::fail_errno("weft launch", "signalfd", errno);
}

SignalReader::~SignalReader() {
  sigaction(SIGPIPE, &former_pipe_, nullptr);
  sigaction(SIGCHLD, &former_child_, nullptr);
  sigprocmask(SIG_SETMASK, &former_, nullptr);
}

std::optional<siginfo_t> SignalReader::next() {
  signalfd_siginfo raw{};
  if (read(fd_.get(), &raw, sizeof(raw)) != sizeof(raw)) return std::nullopt;
  siginfo_t info{};
  info.si_signo = static_cast<int>(raw.ssi_signo);
  info.si_code = raw.ssi_code;
  return info;
}

// In a terminal the ranks stay in the foreground group, where rank 0 can read the keyboard and
// Ctrl-C reaches every rank once; elsewhere they get a group of their own.
Job::Job(const LaunchOptions& options)
    : options_(options),
      needs_(launch_needs(options.backend)),
      all_ranks_(options.num_ranks * options.num_hosts),
      first_rank_(options.num_ranks * options.host),
      page_(StatusPage::create(all_ranks_)),
      port_(options.port),
      socket_(options.host == 0 ? listen_on(options.address, port_, patience_for(options))
                                : core::FileDescriptor()),
      torch_port_(torch_port_for(options, port_)),
      key_(job_key_for(options)),
      job_id_(new_job_id(options)),
      own_process_group_(isatty(STDIN_FILENO) == 0),
      lifeline_(has_lifeline() ? STDIN_FILENO : -1),
      relayed_(RelayedInput::from_env()),
      ranks_(static_cast<size_t>(options.num_ranks)),
      out_(STDOUT_FILENO),
      err_(STDERR_FILENO),
      started_(Clock::now()),
      last_check_(started_) {}

Job::~Job() {
  if (!any_alive()) return;
  signal_all(SIGKILL);
  for (const Rank& rank : ranks_) {
    if (rank.alive) waitpid(rank.pid, nullptr, 0);
  }
  unlink_shm_of_job(job_id_);
}

int Job::run() {
  start_all();
  // Only now: threads must not exist when ranks are forked.
  open_store();
  while (any_alive()) step();
  unlink_shm_of_job(job_id_);
  drain_output();
  if (link_) agree_on_cause();
  // The error is not held back until hosts come that are still to hear of it.
  const bool is_known = has_failed() || foreign_;
  if (is_known) report();
  if (link_) wait_for_other_hosts();
  if (!is_known) report();
  check_output();
  return status_;
}

void Job::start_all() {
  if (needs_.mpirun_places) {
    places_ = std::make_unique<MpiPlaces>(options_.num_ranks, signals_.former_mask());
  }
  for (int index = 0; index < options_.num_ranks; ++index) start_rank(index);
  if (relayed_) relayed_->close_reader();
}

void Job::start_rank(int index) {
  const int rank = first_rank_ + index;
  SpawnRequest request;
  request.command = options_.command;
  if (!needs_.own_program) request.body = options_.body;
  request.name = core::join("weft rank ", rank);
  request.variables = variables_for(index);
  request.kept_fd = page_.fd();
  request.process_group = own_process_group_ ? process_group_ : -1;
  request.signal_mask = signals_.former_mask();
  core::FileDescriptor null;
  if (rank > 0) {
    null = core::FileDescriptor(open("/dev/null", O_RDONLY | O_CLOEXEC));
    request.stdin_fd = null.get();
  } else if (relayed_) {
    request.stdin_fd = relayed_->reader();
  }
  std::array<core::FileDescriptor, 2> writers;
  if (options_.prefix_output) {
    const std::string prefix = core::join("[", rank, "] ");
    for (size_t i = 0; i < writers.size(); ++i) {
      auto [reader, writer] = make_pipe();
      OutputSink* sink = i == 0 ? &out_ : &err_;
      streams_.push_back(
          std::make_unique<Stream>(Stream{std::move(reader), LinePrefixer(prefix), sink}));
      writers[i] = std::move(writer);
    }
    request.stdout_fd = writers[0].get();
    request.stderr_fd = writers[1].get();
  }
  Rank& entry = ranks_[static_cast<size_t>(index)];
  entry.pid = spawn_rank(request);
  entry.alive = true;
  status_of(index).pid.store(entry.pid);
  if (own_process_group_ && process_group_ == 0) process_group_ = entry.pid;
}

void Job::step() {
  wait_for_events();
  handle_signals();
  reap();
  check_heartbeats();
  follow_other_hosts();
  advance_ending();
}

int Job::timeout_ms() const {
  auto wait = std::chrono::duration_cast<std::chrono::milliseconds>(kCheckPeriod);
  for (const auto& deadline : {terminate_at_, kill_at_}) {
    if (!deadline) continue;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline - Clock::now());
    wait = std::clamp<std::chrono::milliseconds>(left, 0ms, wait);
  }
  return static_cast<int>(wait.count());
}

void Job::wait_for_events() {
  // That nobody holds it any more is seen also while nothing is read from it.
  const short lifeline_events = relayed_ && relayed_->is_full() ? 0 : POLLIN;
  std::vector<pollfd> polled = {{signals_.fd(), POLLIN, 0}, {lifeline_, lifeline_events, 0}};
  polled.push_back({relayed_ ? relayed_->writer() : -1, POLLOUT, 0});
  for (OutputSink* sink : {&out_, &err_}) {
    polled.push_back({sink->has_pending() ? sink->fd() : -1, POLLOUT, 0});
  }
  for (const auto& stream : streams_) {
    polled.push_back({stream->sink->is_full() ? -1 : stream->fd.get(), POLLIN, 0});
  }
  if (::poll(polled.data(), polled.size(), timeout_ms()) <= 0) return;
  if (polled[1].revents != 0) look_at_lifeline();
  if (polled[2].revents != 0) relayed_->write_some();
  if (polled[3].revents != 0) out_.write_some();
  if (polled[4].revents != 0) err_.write_some();
  for (size_t i = 0; i < streams_.size(); ++i) {
    if (polled[i + 5].revents != 0) read_stream(*streams_[i]);
  }
  std::erase_if(streams_, [](const auto& stream) { return !stream->fd.is_open(); });
}

void Job::read_stream(Stream& stream) {
  std::array<char, 64 << 10> bytes;
  const ssize_t length = read(stream.fd.get(), bytes.data(), bytes.size());
  if (length < 0 && (errno == EAGAIN || errno == EINTR)) return;
  std::string text;
  if (length > 0) {
    stream.lines.feed({bytes.data(), static_cast<size_t>(length)}, text);
  } else {
    stream.lines.finish(text);
    stream.fd.reset();
  }
  stream.sink->add(text);
  // Nobody reads any more: the rank gets SIGPIPE, as it would without us.
  if (stream.sink->is_broken()) stream.fd.reset();
}

bool Job::asks_to_end(int signal_number) const {
  const auto keeps_on = [this](int rank) { return status_of(rank).keeps_on.load() != 0; };
  for (int rank = 0; signal_number == SIGINT && rank < options_.num_ranks; ++rank) {
    if (keeps_on(rank)) return false;
  }
  return signal_number != SIGUSR1 && signal_number != SIGUSR2;
}

// Who has started this launcher from another host keeps it open, and ends it by closing it.
void Job::look_at_lifeline() {
  std::array<char, 4096> bytes;
  const ssize_t got = read(lifeline_, bytes.data(), bytes.size());
  if (got > 0 && relayed_) relayed_->feed({bytes.data(), static_cast<size_t>(got)});
  if (got > 0) return;
  lifeline_ = -1;
  note_asked(SIGTERM);
  signal_all(SIGTERM);
}

void Job::note_asked(int signal_number) {
  asked_signal_ = signal_number;
  if (!link_) return;
  link_->tell(128 + signal_number,
              core::join("weft launch: the job was ended by ", signal_name(signal_number),
                         " on host ", host_name(), "\n"));
}

void Job::handle_signals() {
  while (const auto info = signals_.next()) {
    if (info->si_signo == SIGCHLD) continue;
    const bool ends = asks_to_end(info->si_signo);
    if (ends) note_asked(info->si_signo);
    // The terminal has sent it to every process of the foreground group already.
    const bool reached_all = !own_process_group_ && info->si_code == SI_KERNEL;
    if (!reached_all) signal_all(info->si_signo);
  }
}

void Job::reap() {
  for (size_t i = 0; i < ranks_.size(); ++i) {
    Rank& rank = ranks_[i];
    if (!rank.alive) continue;
    if (waitpid(rank.pid, &rank.wait_status, WNOHANG) != rank.pid) continue;
    rank.alive = false;
    note_end(static_cast<int>(i));
  }
}

void Job::note_end(int rank) {
  const int wait_status = ranks_[static_cast<size_t>(rank)].wait_status;
  const bool killed = WIFSIGNALED(wait_status);
  if (!killed && WEXITSTATUS(wait_status) == 0) return;
  if (killed && WTERMSIG(wait_status) == SIGPIPE && out_.is_broken()) {
    return note_failure(rank, 128 + SIGPIPE, "");
  }
  if (!killed) {
    const int status = WEXITSTATUS(wait_status);
    return note_failure(rank, status, core::join("ended with status ", status));
  }
  note_failure(rank, kCommErrorStatus,
               "was killed by " + signal_name(WTERMSIG(wait_status)) + " " +
                   describe_operation(status_of(rank)));
}

// The first failure is the cause, but a rank that only complains of another gives way to one that
// failed of its own, as long as nobody was ended by us: it ended with status 4 by itself, or, as
// Gloo's threads write, by SIGPIPE when another had gone.
void Job::note_failure(int rank, int status, const std::string& what) {
  if (ended_by_us_) return;
  const Rank& entry = ranks_[static_cast<size_t>(rank)];
  const bool exited = has_exited(entry);
  const bool lost_peer = !entry.alive && WIFSIGNALED(entry.wait_status) &&
                         WTERMSIG(entry.wait_status) == SIGPIPE && !out_.is_broken();
  const bool complains = lost_peer || (exited && status == kCommErrorStatus);
  if (failed_rank_ < 0 || (cause_complains_ && !complains)) {
    failed_rank_ = rank;
    status_ = status;
    failure_ = what;
    cause_complains_ = complains;
  }
  const auto settle = asked_signal_ != 0 ? options_.grace : kSettleTime;
  if (!terminate_at_) terminate_at_ = Clock::now() + settle;
}

void Job::check_heartbeats() {
  // Ranks notice a silent peer themselves; the launcher is there for those that cannot.
  static const std::chrono::milliseconds kSilenceLimit = launcher_silence_limit();
  const auto now = Clock::now();
  if (now - last_check_ < kCheckPeriod) return;
  last_check_ = now;
  for (int i = 0; i < options_.num_ranks; ++i) {
    Rank& rank = ranks_[static_cast<size_t>(i)];
    const uint32_t beat = status_of(i).beat.load(std::memory_order_relaxed);
    // A rank that starts or ends has no heartbeat. It may take long, but not while it is stopped.
    const bool is_silent =
        rank.alive && (beat == 0 ? is_stopped(rank.pid) : beat == rank.last_beat);
    // Counted in our own steps, so that a job that was stopped as a whole is not taken for stuck.
    rank.silent = is_silent ? rank.silent + kCheckPeriod : 0ms;
    rank.last_beat = beat;
    if (rank.silent < kSilenceLimit || failed_rank_ >= 0) continue;
    note_failure(i, kCommErrorStatus,
                 core::join("has not answered for ", rank.silent / 1s, " s (stopped or stuck) ",
                            describe_operation(status_of(i))));
  }
}

void Job::advance_ending() {
  const auto now = Clock::now();
  if (terminate_at_ && now >= *terminate_at_) {
    terminate_at_.reset();
    kill_at_ = now + options_.grace;
    // Ranks that only complain of others may do so because of another host, which tells why.
    if (link_ && failed_rank_ >= 0 && !cause_complains_) tell_other_hosts();
    ended_by_us_ = true;
    signal_all(SIGTERM);
    signal_all(SIGCONT);  // a stopped process would not get the signal
  }
  if (kill_at_ && now >= *kill_at_) {
    kill_at_.reset();
    signal_all(SIGKILL);
  }
}

void Job::signal_all(int signal_number) {
  if (own_process_group_ && process_group_ != 0 && any_alive()) {
    kill(-process_group_, signal_number);
    return;
  }
  for (const Rank& rank : ranks_) {
    if (rank.alive) kill(rank.pid, signal_number);
  }
}

bool Job::any_alive() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.alive; });
}

// A reader that goes ends the job quietly; nothing else does.
void Job::check_output() const {
  const int error = out_.error();
  if (error != 0 && error != EPIPE) core::fail_errno("stdout", "cannot write", error);
}

// What the ranks wrote before they ended; a process that they left behind may keep a pipe open.
void Job::drain_output() {
  const auto deadline = Clock::now() + 200ms;
  while (!streams_.empty() && Clock::now() < deadline) {
    terminate_at_ = deadline;
    wait_for_events();
  }
  for (const auto& stream : streams_) {
    std::string text;
    stream->lines.finish(text);
    stream->sink->add(text);
  }
  out_.flush();
  err_.flush();
}

}  // namespace weft::dist
