#include "weft/serve/api/metrics.h"

#include <chrono>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "weft/core/error.h"
#include "weft/core/json.h"
#include "weft/core/log.h"
#include "weft/serve/engine/step_plan.h"

namespace weft::serve {
namespace {

std::string type_line(const std::string& name, const char* type) {
  return core::join("# TYPE weft:", name, " ", type, "\n");
}

template <class Value>
std::string single(const std::string& name, const char* type, const Value& value) {
  return core::join(type_line(name, type), "weft:", name, " ", value, "\n");
}

template <class Map>
std::string labelled(const std::string& name, const std::string& label, const Map& values) {
  std::string text = type_line(name, "counter");
  for (const auto& [key, value] : values) {
    text += core::join("weft:", name, "{", label, "=\"", key, "\"} ", value, "\n");
  }
  return text;
}

// In tokens, as vLLM counts them, and in pages.
std::string prefix_text(const PrefixCacheState& state, const PrefixCacheOptions& options) {
  return single("prefix_cache_queries_total", "counter", state.num_asked) +
         single("prefix_cache_hits_total", "counter", state.num_saved) +
         single("prefix_cache_evictions_total", "counter", state.num_evicted) +
         single("prefix_cache_pages", "gauge", state.num_pages) +
         single("prefix_cache_bytes", "gauge", state.num_pages * options.page_bytes) +
         single("prefix_cache_limit_bytes", "gauge", options.num_pages * options.page_bytes);
}

nlohmann::json json_of(const RequestRecord& record) {
  nlohmann::json line = {{"id", record.id},
                         {"prompt_tokens", record.num_prompt},
                         {"cached_tokens", record.num_reused},
                         {"completion_tokens", record.num_drawn},
                         {"seconds", record.seconds},
                         {"finish_reason", record.end}};
  if (!record.request_id.empty()) line["request_id"] = record.request_id;
  if (record.first_token_seconds) line["first_token_seconds"] = *record.first_token_seconds;
  return line;
}

// How a line of words names a request.
std::string of_request(const std::string& id) {
  return id.empty() ? "" : core::join(" (request ", id, ")");
}

// `time`: seconds since 1970.
void write_json_line(nlohmann::json line) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  line["time"] = std::chrono::duration<double>(now).count();
  const std::string text = core::dump_json(line) + "\n";
  std::fwrite(text.data(), 1, text.size(), stderr);
}

}  // namespace

void Histogram::add(double seconds) {
  for (size_t i = 0; i < kBounds.size(); ++i) at_most_[i] += seconds <= kBounds[i] ? 1 : 0;
  ++count_;
  sum_ += seconds;
}

std::string Histogram::text(const std::string& name) const {
  std::string text = type_line(name, "histogram");
  for (size_t i = 0; i < kBounds.size(); ++i) {
    text += core::join("weft:", name, "_bucket{le=\"", kBounds[i], "\"} ", at_most_[i], "\n");
  }
  return text + core::join("weft:", name, "_bucket{le=\"+Inf\"} ", count_, "\nweft:", name, "_sum ",
                           sum_, "\nweft:", name, "_count ", count_, "\n");
}

void Metrics::add_drawn(int64_t tokens) {
  const std::lock_guard lock(mutex_);
  drawn_tokens_ += tokens;
}

void Metrics::add_request(const RequestRecord& record) {
  {
    const std::lock_guard lock(mutex_);
    prompt_tokens_ += record.num_prompt;
    reused_tokens_ += record.num_reused;
    if (record.end == "cancelled") {
      ++cancelled_;
    } else {
      ++answers_[record.end];
      of_request_.add(record.seconds);
    }
  }
  if (logs_json_) return write_json_line(json_of(record));
  core::log(core::LogLevel::kInfo, "serve: ", record.id, of_request(record.request_id), ": ",
            record.num_prompt, " tokens of prompt, ", record.num_reused, " of them reused, ",
            record.num_drawn, " new in ", record.seconds, " s: ", record.end);
}

void Metrics::add_refused(int status, const std::string& message, const std::string& request_id) {
  {
    const std::lock_guard lock(mutex_);
    ++refused_[status];
  }
  if (logs_json_) {
    nlohmann::json line = {{"status", status}, {"error", message}};
    if (!request_id.empty()) line["request_id"] = request_id;
    return write_json_line(std::move(line));
  }
  core::log(core::LogLevel::kInfo, "serve: refused", of_request(request_id), " with ", status, ": ",
            core::quote(message));
}

void Metrics::add_failed_handshake(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    ++failed_handshakes_;
  }
  const std::string message = "no TLS session: " + reason;
  if (logs_json_) return write_json_line({{"error", message}});
  core::log(core::LogLevel::kInfo, "serve: ", message);
}

void Metrics::add_first_token(double seconds) {
  const std::lock_guard lock(mutex_);
  to_first_token_.add(seconds);
}

void Metrics::add_next_token(double seconds) {
  const std::lock_guard lock(mutex_);
  between_tokens_.add(seconds);
}

std::string Metrics::text(const SchedulerState& state, const SchedulerOptions& options) const {
  const int64_t most =
      options.kv_pieces != 0 ? options.kv_pieces * kPieceTokens : options.context * options.slots;
  const double kept = static_cast<double>(state.num_kept) / static_cast<double>(most);
  const std::lock_guard lock(mutex_);
  return single("num_requests_running", "gauge", state.num_running) +
         single("num_requests_waiting", "gauge", state.num_waiting) +
         single("kv_cache_usage_perc", "gauge", kept) +
         single("num_preemptions_total", "counter", state.num_preempted) +
         single("spec_decode_num_draft_tokens_total", "counter", state.num_guessed) +
         single("spec_decode_num_accepted_tokens_total", "counter", state.num_guessed_right) +
         single("prompt_tokens_total", "counter", prompt_tokens_) +
         single("prompt_tokens_cached_total", "counter", reused_tokens_) +
         prefix_text(state.prefix, options.prefix) +
         single("generation_tokens_total", "counter", drawn_tokens_) +
         single("requests_cancelled_total", "counter", cancelled_) +
         single("tls_handshakes_failed_total", "counter", failed_handshakes_) +
         labelled("request_success_total", "finished_reason", answers_) +
         labelled("requests_refused_total", "status", refused_) +
         to_first_token_.text("time_to_first_token_seconds") +
         between_tokens_.text("inter_token_latency_seconds") +
         of_request_.text("e2e_request_latency_seconds");
}

}  // namespace weft::serve
