#pragma once

#include <poll.h>
#include <signal.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "weft/core/files/file.h"
#include "weft/dist/backends/names.h"
#include "weft/dist/launch/host_link.h"
#include "weft/dist/launch/launch.h"
#include "weft/dist/launch/launch_output.h"
#include "weft/dist/launch/mpi_places.h"
#include "weft/dist/launch/remote_launch.h"
#include "weft/dist/launch/status_page.h"

namespace weft::dist {

class StoreServer;

/// The exit status of a program that ends with a core::CommError.
inline constexpr int kCommErrorStatus = 4;

/// Blocks signals and reads them from a descriptor instead, until it goes.
class SignalReader {
 public:
  SignalReader();
  SignalReader(const SignalReader&) = delete;
  SignalReader& operator=(const SignalReader&) = delete;
  ~SignalReader();

  int fd() const { return fd_.get(); }
  /// The mask from before, for children.
  const sigset_t& former_mask() const { return former_; }
  /// The next signal; nothing if there is none.
  std::optional<siginfo_t> next();

 private:
  sigset_t former_{};
  struct sigaction former_pipe_ {};
  struct sigaction former_child_ {};
  core::FileDescriptor fd_;
};

/// The key that a job's ranks prove to its store, and the port at which a program that knows only
/// torch's variables may serve a store of its own.
std::string job_key_for(const LaunchOptions& options);
int torch_port_for(const LaunchOptions& options, int port);

/// The ranks of one `launch`: starts them, carries their output and signals, and ends them.
class Job {
 public:
  explicit Job(const LaunchOptions& options);
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  ~Job();

  /// Runs to the end and returns the exit status for the program.
  int run();

 private:
  using Clock = std::chrono::steady_clock;

  struct Stream {
    core::FileDescriptor fd;
    LinePrefixer lines;
    OutputSink* sink;
  };

  struct Rank {
    pid_t pid = 0;
    bool alive = false;
    int wait_status = 0;
    uint32_t last_beat = 0;
    std::chrono::milliseconds silent{0};
  };

  // Ranks are counted by their index on this host.
  void start_all();
  void open_store();
  void start_rank(int index);
  std::vector<std::pair<std::string, std::string>> variables_for(int index) const;
  RankStatus& status_of(int index) const { return page_.rank(first_rank_ + index); }
  void step();
  void wait_for_events();
  void read_stream(Stream& stream);
  bool asks_to_end(int signal_number) const;
  void handle_signals();
  void look_at_lifeline();
  void note_asked(int signal_number);
  void reap();
  void note_end(int rank);
  void note_failure(int rank, int status, const std::string& what);
  void check_heartbeats();
  void advance_ending();
  void signal_all(int signal_number);
  bool any_alive() const;
  int timeout_ms() const;
  void drain_output();
  void check_output() const;
  std::string last_words_of_ranks() const;
  std::string report_text() const;
  void report();
  void follow_other_hosts();
  bool has_failed() const { return failed_rank_ >= 0 || asked_signal_ != 0; }
  void agree_on_cause();
  void tell_other_hosts();
  void wait_for_other_hosts();
  static bool has_exited(const Rank& rank);
  bool all_ended_alike() const;
  std::string name_of(int rank) const;

  const LaunchOptions& options_;
  LaunchNeeds needs_;
  SignalReader signals_;
  int all_ranks_;
  int first_rank_;
  StatusPage page_;
  int port_;
  core::FileDescriptor socket_;
  int torch_port_;
  std::string key_;
  std::string job_id_;
  bool own_process_group_;
  pid_t process_group_ = 0;
  /// Whose end asks the job to stop; -1: none.
  int lifeline_;
  /// Only where rank 0's stdin comes through the lifeline.
  std::unique_ptr<RelayedInput> relayed_;
  std::unique_ptr<StoreServer> store_;
  /// Only for a backend that needs them.
  std::unique_ptr<MpiPlaces> places_;
  /// Only for several hosts.
  std::unique_ptr<HostLink> link_;
  std::optional<ForeignEnd> foreign_;
  std::vector<Rank> ranks_;
  std::vector<std::unique_ptr<Stream>> streams_;
  OutputSink out_;
  OutputSink err_;

  int asked_signal_ = 0;
  int status_ = 0;
  int failed_rank_ = -1;
  std::string failure_;
  /// What other hosts were told, which is what is said here as well: ranks that were ended may have
  /// other last words.
  std::optional<std::string> told_;
  bool cause_complains_ = false;
  bool ended_by_us_ = false;
  std::optional<Clock::time_point> terminate_at_;
  std::optional<Clock::time_point> kill_at_;
  Clock::time_point started_;
  Clock::time_point last_check_;
};

}  // namespace weft::dist
