#pragma once

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace c10d {
class Store;
}

namespace weft::dist {

/// How a job ended on another host, for this one to end alike.
struct ForeignEnd {
  int status = 0;
  /// One line or several, as that host says it.
  std::string text;
};

/// What the launchers of a job on several hosts tell each other through the store that its ranks
/// meet at: that they live, how the job failed, that they are done. A thread of its own does the
/// talking, so that a network that hangs holds up nothing here.
class HostLink {
 public:
  /// Finds the store within the time that it is given, or throws.
  using Opener = std::function<c10::intrusive_ptr<c10d::Store>(std::chrono::milliseconds)>;

  /// `open` is tried for `open_time`, as long as ranks wait for each other at the start; then the
  /// job is lost, and so it is when a host is not heard of for `silence` (max(): never).
  HostLink(int hosts, int host, std::string name, Opener open, std::chrono::milliseconds open_time,
           std::chrono::milliseconds silence);
  HostLink(const HostLink&) = delete;
  HostLink& operator=(const HostLink&) = delete;
  ~HostLink();

  /// Tells the others that the job failed here. Only the first failure of the job counts.
  void tell(int status, const std::string& text);
  /// True once what this host has told is what ended the job; where another was first, that is its
  /// foreign_end() instead.
  bool has_told();
  /// Tells them that all is done here.
  void leave();
  /// How the job ended elsewhere, if it did: another host has told, or host 0 and another do not
  /// hear from each other for too long.
  std::optional<ForeignEnd> foreign_end();
  /// True once what this host has to say is said and, where it serves the store, all others left.
  bool may_go();

 private:
  struct Other {
    int64_t beat = 0;
    std::chrono::milliseconds silent{0};
    bool left = false;
    std::string name;
  };

  void run();
  void talk(c10d::Store& store);
  void lose(int status, const std::string& text);
  c10::intrusive_ptr<c10d::Store> open_store();
  void round(c10d::Store& store);
  void say(c10d::Store& store);
  void listen(c10d::Store& store);
  void look_after(c10d::Store& store, int host);
  void hear_failure(c10d::Store& store);
  void tell_job(c10d::Store& store, int status, const std::string& text);
  std::string silence_of(int host) const;
  void end_by(int status, const std::string& text);

  const int hosts_;
  const int host_;
  const std::string name_;
  Opener open_;
  const std::chrono::milliseconds open_time_;
  const std::chrono::milliseconds silence_;
  std::vector<Other> others_;
  int64_t beat_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  bool leaves_ = false;
  bool said_leave_ = false;
  bool lost_ = false;
  bool has_told_ = false;
  bool all_left_ = false;
  std::optional<ForeignEnd> to_tell_;
  std::optional<ForeignEnd> foreign_;
  std::thread thread_;
};

}  // namespace weft::dist
