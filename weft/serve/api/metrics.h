#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "weft/serve/engine/scheduler.h"

namespace weft::serve {

/// How often values were at most each of some bounds, as Prometheus counts them.
class Histogram {
 public:
  void add(double seconds);
  /// Lines of the text format under `name`.
  std::string text(const std::string& name) const;

 private:
  static constexpr std::array<double, 14> kBounds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                                     0.25,  0.5,    1,     2.5,  5,     10,   30};
  std::array<uint64_t, kBounds.size()> at_most_ = {};
  uint64_t count_ = 0;
  double sum_ = 0;
};

/// A request that is over.
struct RequestRecord {
  /// The answer's, and the request's own; the latter is empty where it came by no connection.
  std::string id, request_id;
  int64_t num_prompt = 0;
  int64_t num_reused = 0;
  int64_t num_drawn = 0;
  /// To its first token, unless none came, and to its end.
  std::optional<double> first_token_seconds = {};
  double seconds = 0;
  /// "stop", "length", "failed" or "cancelled".
  std::string end;
};

/// What a server has done since it began; for any thread.
class Metrics {
 public:
  /// `logs_json`: a line on stderr for each request is a JSON object rather than words.
  explicit Metrics(bool logs_json = false) : logs_json_(logs_json) {}

  void add_drawn(int64_t tokens);
  /// Counts and logs a request that was taken, once it is over.
  void add_request(const RequestRecord& record);
  /// The same of one that got an error.
  void add_refused(int status, const std::string& message, const std::string& request_id);
  /// The same of a client with which there is no TLS session.
  void add_failed_handshake(const std::string& reason);
  void add_first_token(double seconds);
  void add_next_token(double seconds);

  /// The text format of Prometheus, version 0.0.4.
  std::string text(const SchedulerState& state, const SchedulerOptions& options) const;

 private:
  bool logs_json_;
  mutable std::mutex mutex_;
  int64_t prompt_tokens_ = 0, reused_tokens_ = 0, drawn_tokens_ = 0, cancelled_ = 0,
          failed_handshakes_ = 0;
  std::map<std::string, int64_t> answers_;
  std::map<int, int64_t> refused_;
  Histogram to_first_token_, between_tokens_, of_request_;
};

}  // namespace weft::serve
