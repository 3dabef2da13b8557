#include "weft/dist/launch/host_link.h"

#include <algorithm>
#include <chrono>
#include <sstream>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "weft/core/error.h"
#include "weft/core/thread.h"

namespace weft::dist {
namespace {

using namespace std::chrono_literals;

constexpr auto kPeriod = 250ms;
constexpr auto kTryTime = 2000ms;
constexpr int kLostStatus = 4;
constexpr const char* kFailure = "weft/launch/failure";

std::string key_of(const char* what, int host) {
  return core::join("weft/launch/", what, "/", host);
}

}  // namespace

HostLink::HostLink(int hosts, int host, std::string name, Opener open,
                   std::chrono::milliseconds open_time, std::chrono::milliseconds silence)
    : hosts_(hosts),
      host_(host),
      name_(std::move(name)),
      open_(std::move(open)),
      open_time_(open_time),
      silence_(silence),
      others_(static_cast<size_t>(hosts)) {
  thread_ = core::start_thread("weft launch: hosts", [this] { run(); });
}

HostLink::~HostLink() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void HostLink::tell(int status, const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (!to_tell_) to_tell_ = ForeignEnd{status, text};
  changed_.notify_all();
}

void HostLink::leave() {
  const std::lock_guard lock(mutex_);
  leaves_ = true;
  changed_.notify_all();
}

std::optional<ForeignEnd> HostLink::foreign_end() {
  const std::lock_guard lock(mutex_);
  return foreign_;
}

bool HostLink::may_go() {
  const std::lock_guard lock(mutex_);
  return foreign_ || lost_ || (said_leave_ && (host_ != 0 || all_left_));
}

void HostLink::end_by(int status, const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (!foreign_) foreign_ = ForeignEnd{status, text};
}

// A first connection may get lost while the network of a host comes up, so each try is short.
c10::intrusive_ptr<c10d::Store> HostLink::open_store() {
  const auto deadline = std::chrono::steady_clock::now() + open_time_;
  while (true) {
    try {
      return open_(kTryTime);
    } catch (const core::ConfigError&) {
      throw;
    } catch (const std::exception&) {
      std::unique_lock lock(mutex_);
      if (stop_ || std::chrono::steady_clock::now() > deadline) throw;
      changed_.wait_for(lock, kPeriod);
    }
  }
}

void HostLink::run() {
  c10::intrusive_ptr<c10d::Store> store;
  try {
    store = open_store();
    talk(*store);
  } catch (const core::ConfigError& error) {
    lose(error.exit_code(), core::join("weft launch: ConfigError: ", error.what(), "\n"));
  } catch (const std::exception& error) {
    // Hosts that have not met have no silence between them.
    const bool has_met = store != nullptr;
    lose(kLostStatus,
         has_met ? silence_of(0) : core::join("weft launch: CommError: ", error.what(), "\n"));
  }
}

void HostLink::talk(c10d::Store& store) {
  std::unique_lock lock(mutex_);
  while (true) {
    const bool stops = stop_;
    lock.unlock();
    round(store);
    lock.lock();
    if (stops) return;
    changed_.wait_for(lock, kPeriod);
  }
}

// Host 0 goes when all have said that they are done.
void HostLink::lose(int status, const std::string& text) {
  const std::lock_guard lock(mutex_);
  lost_ = true;
  if (leaves_ || stop_ || foreign_) return;
  foreign_ = ForeignEnd{status, text};
}

void HostLink::round(c10d::Store& store) {
  say(store);
  listen(store);
}

void HostLink::say(c10d::Store& store) {
  store.set(key_of("beat", host_), core::join(++beat_, ' ', name_));
  std::optional<ForeignEnd> telling;
  bool leaving = false;
  {
    const std::lock_guard lock(mutex_);
    telling = to_tell_;
    leaving = leaves_ && !said_leave_;
  }
  if (telling) tell_job(store, telling->status, telling->text);
  if (!leaving) return;
  store.set(key_of("left", host_), std::string("left"));
  const std::lock_guard lock(mutex_);
  said_leave_ = true;
}

// Hosts may tell at the same time: the first one's text stays.
void HostLink::tell_job(c10d::Store& store, int status, const std::string& text) {
  store.compareSet(kFailure, std::string(), core::join(host_, ' ', status, ' ', text));
}

bool HostLink::has_told() {
  const std::lock_guard lock(mutex_);
  return has_told_;
}

void HostLink::hear_failure(c10d::Store& store) {
  if (!store.check({kFailure})) return;
  std::istringstream fields(store.get_to_str(kFailure));
  int host = 0;
  int status = 0;
  fields >> host >> status;
  fields.get();
  std::string text{std::istreambuf_iterator<char>(fields), {}};
  if (host != host_) return end_by(status, text);
  const std::lock_guard lock(mutex_);
  has_told_ = true;
}

void HostLink::listen(c10d::Store& store) {
  hear_failure(store);
  for (int host = 0; host < hosts_; ++host) {
    if (host != host_) look_after(store, host);
  }
  const std::lock_guard lock(mutex_);
  all_left_ = true;
  for (int host = 0; host < hosts_; ++host) {
    all_left_ = all_left_ && (host == host_ || others_[static_cast<size_t>(host)].left);
  }
}

// What both sides of a cut say: host 0 of another host, the other host of host 0.
std::string HostLink::silence_of(int host) const {
  const auto name_of = [this](int each) {
    const std::string& name = each == host_ ? name_ : others_[static_cast<size_t>(each)].name;
    return name.empty() ? core::join("host ", each) : core::join("host ", each, " (", name, ")");
  };
  const bool is_never = silence_ == std::chrono::milliseconds::max();
  const std::string time = is_never ? "" : core::join(" for ", silence_ / 1s, " s");
  return core::join("weft launch: CommError: ", name_of(0), " and ", name_of(std::max(host, host_)),
                    " have not heard from each other", time,
                    ": one of them is cut off, stopped or has ended; the ranks were ended\n");
}

// A host that has not come yet is waited for by the ranks themselves. Host 0 judges for all.
void HostLink::look_after(c10d::Store& store, int host) {
  Other& other = others_[static_cast<size_t>(host)];
  other.left = other.left || store.check({key_of("left", host)});
  if (other.left || !store.check({key_of("beat", host)})) return;
  std::istringstream fields(store.get_to_str(key_of("beat", host)));
  int64_t beat = 0;
  fields >> beat >> other.name;
  // Counted in rounds, so that a job which was stopped as a whole is not taken for silent.
  other.silent = beat == other.beat ? other.silent + kPeriod : 0ms;
  other.beat = beat;
  const bool judges = host_ == 0 || host == 0;
  if (!judges || other.silent < silence_) return;
  const std::string text = silence_of(host);
  if (host_ == 0) tell_job(store, kLostStatus, text);
  end_by(kLostStatus, text);
}

}  // namespace weft::dist
