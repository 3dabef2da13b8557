#include "weft/dist/store/remote_watch.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>

#include <algorithm>

#include "weft/core/error.h"
#include "weft/dist/store/sockets.h"

namespace weft::dist {
namespace {

using namespace std::chrono_literals;

constexpr auto kBeatTime = 500ms;
constexpr auto kLookTime = 100ms;
constexpr auto kAgreeTime = 2s;

bool has_data(int socket) {
  pollfd polled{socket, POLLIN, 0};
  return ::poll(&polled, 1, static_cast<int>(kLookTime.count())) > 0;
}

}  // namespace

RemoteWatch::RemoteWatch(core::FileDescriptor socket, RemoteWatchOptions options)
    : socket_(std::move(socket)), options_(std::move(options)) {
  sigset_t all;
  sigset_t former;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &former);
  give_up_after(socket_.get(), options_.silence_limit);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &former, nullptr);
}

RemoteWatch::~RemoteWatch() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  thread_.join();
}

bool RemoteWatch::has_ended(int rank) const {
  const std::lock_guard lock(mutex_);
  return ended_.contains(rank);
}

std::string RemoteWatch::verdict() const {
  const std::lock_guard lock(mutex_);
  return verdict_;
}

std::string RemoteWatch::agree(const std::string& seen) {
  std::unique_lock lock(mutex_);
  to_propose_ = seen;
  changed_.wait_for(lock, kAgreeTime, [this] { return !verdict_.empty() || store_goes_; });
  return verdict_.empty() ? seen : verdict_;
}

void RemoteWatch::judge(const std::string& verdict) {
  const std::lock_guard lock(mutex_);
  if (verdict_.empty()) verdict_ = verdict;
  changed_.notify_all();
}

// It may be that nothing comes through in one direction alone: the store is told.
void RemoteWatch::judge_silence() {
  std::string seen = silence_between(options_.self.host, store_host_, options_.silence_limit);
  if (options_.self.host == store_host_) {
    seen = core::join(options_.server, " has not answered for ", options_.silence_limit / 1s,
                      " s: stopped or stuck");
  }
  {
    const std::lock_guard lock(mutex_);
    if (verdict_.empty()) to_propose_ = seen;
  }
  judge(seen);
}

void RemoteWatch::run() {
  try {
    talk();
  } catch (const std::exception&) {
    {
      const std::lock_guard lock(mutex_);
      if (stop_ || store_goes_) return;
    }
    judge(options_.server + " was killed or has ended");
  }
}

// What goes out next: a heartbeat if it is due, what this rank has seen, and that it leaves.
std::string RemoteWatch::next_words(bool beats) {
  const std::lock_guard lock(mutex_);
  const HealthReport& self = options_.self;
  std::string words;
  if (beats) {
    MessageWriter beat;
    beat.op(StoreOp::kBeat).number(self.rank).text(self.host).text(self.name);
    words += beat.text(options_.doing()).framed();
  }
  if (!to_propose_.empty()) {
    words += MessageWriter().op(StoreOp::kPropose).text(to_propose_).framed();
  }
  to_propose_.clear();
  if (stop_) words += MessageWriter().op(StoreOp::kLeave).number(self.rank).framed();
  return words;
}

bool RemoteWatch::is_over() const {
  const std::lock_guard lock(mutex_);
  return stop_ || store_goes_;
}

// Silence is counted in steps of our own, so that a job that was stopped as a whole is not taken
// for stuck.
void RemoteWatch::talk() {
  std::chrono::milliseconds since_beat = kBeatTime;
  std::chrono::milliseconds silent{0};
  const auto limit = options_.silence_limit;
  while (!is_over()) {
    const bool beats = since_beat >= kBeatTime;
    send_all(socket_.get(), next_words(beats), StoreClock::now() + kAnswerTime);
    const auto before = StoreClock::now();
    const bool heard = has_data(socket_.get());
    const auto step = std::min<std::chrono::milliseconds>(
        std::chrono::ceil<std::chrono::milliseconds>(StoreClock::now() - before), 2 * kLookTime);
    since_beat = beats ? step : since_beat + step;
    silent = heard ? 0ms : silent + step;
    if (heard) hear(MessageReader(receive_message(socket_.get(), StoreClock::now() + kAnswerTime)));
    const bool is_silent =
        limit != std::chrono::milliseconds::max() && silent >= limit + HealthBoard::kSettle;
    if (is_silent) judge_silence();
  }
  const std::string words = next_words(false);
  if (!words.empty()) send_all(socket_.get(), words, StoreClock::now() + kAnswerTime);
}

void RemoteWatch::hear(MessageReader state) {
  const std::string verdict = state.text();
  const std::lock_guard lock(mutex_);
  store_host_ = state.text();
  store_goes_ = state.number() != 0;
  if (store_goes_ && options_.server_rank >= 0) ended_.insert(options_.server_rank);
  while (!state.at_end()) ended_.insert(static_cast<int>(state.number()));
  if (verdict_.empty()) verdict_ = verdict;
  if (!verdict_.empty() || store_goes_) changed_.notify_all();
}

}  // namespace weft::dist
