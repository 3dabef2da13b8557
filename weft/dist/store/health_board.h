#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

namespace weft::dist {

/// A rank as it tells the job's store of itself with each heartbeat.
struct HealthReport {
  int rank = 0;
  std::string host;
  /// "rank 1 (pid 5, host x)".
  std::string name;
  /// " during all_reduce #4 of group world"; may be empty.
  std::string doing;
};

/// What is said of two hosts between which nothing has come through for `limit`. Both sides say the
/// same, whichever comes first in the text: host names are put in order.
std::string silence_between(const std::string& a, const std::string& b,
                            std::chrono::milliseconds limit);

/// Who of a job's ranks lives, as their heartbeats tell it, and the one line on what has happened
/// that all of them say. Holds no clock: time passes by pass(), so that a job which is stopped as a
/// whole and continued is not taken for stuck.
class HealthBoard {
 public:
  /// Beats that come late by less than this are taken together, so that a host whose ranks fall
  /// silent one after the other is named as a whole.
  static constexpr std::chrono::milliseconds kSettle{1000};

  /// `own_host` has the board. A rank that is silent for `limit` counts as stuck; max(): never.
  HealthBoard(std::string own_host, std::chrono::milliseconds limit);

  void beat(const HealthReport& report);
  /// The rank has come to its end in order.
  void leave(int rank);
  /// The rank's connection has broken.
  void lose(int rank);
  /// Somebody has seen what happened. Only the first verdict of a job counts.
  void propose(const std::string& verdict);
  void pass(std::chrono::milliseconds time);

  /// What has happened; empty: nothing.
  const std::string& verdict() const { return verdict_; }
  /// The ranks that have left or are lost, ascending.
  std::vector<int> ended() const;
  /// Another number after each change of the above.
  int version() const { return version_; }

 private:
  struct Member {
    HealthReport report;
    std::chrono::milliseconds silent{0};
    bool ended = false;
  };

  void end(int rank);
  bool is_silent_host(const std::string& host) const;

  std::string own_host_;
  std::chrono::milliseconds limit_;
  std::map<int, Member> members_;
  std::string verdict_;
  int version_ = 0;
};

}  // namespace weft::dist
