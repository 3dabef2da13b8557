#include "weft/serve/load/load.h"

#include <algorithm>
#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <chrono>
#include <cmath>
#include <exception>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "weft/core/error.h"
#include "weft/core/json.h"
#include "weft/core/terminal/printable.h"
#include "weft/serve/load/event_lines.h"
#include "weft/serve/load/load_client.h"

namespace weft::serve {
namespace {

namespace asio = boost::asio;
using Clock = std::chrono::steady_clock;
using nlohmann::json;

constexpr std::array kWords = {"the", "of",  "and",  "to",   "in",   "is", "you",  "that", "it",
                               "he",  "was", "for",  "on",   "are",  "as", "with", "his",  "they",
                               "at",  "be",  "this", "have", "from", "or", "one",  "had",  "by"};

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void add_words(std::string& text, int64_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (int64_t i = 0; i < count; ++i) {
    if (!text.empty()) text += ' ';
    text += kWords[random() % kWords.size()];
  }
}

std::string prompt_of(const LoadOptions& options, int64_t number) {
  const int64_t shared = std::min(options.shared_words, options.prompt_words);
  std::string prompt;
  add_words(prompt, shared, options.seed);
  add_words(prompt, options.prompt_words - shared,
            options.seed + 1 + static_cast<uint64_t>(number) * 0x9E3779B97F4A7C15ULL);
  return prompt;
}

// Takes the events of one stream.
class StreamedAnswer {
 public:
  void take(std::string_view data) {
    if (data == "[DONE]") return;
    const json event = core::parse_json(data, "an event of the answer");
    if (event.contains("error")) {
      const json& error = event["error"];
      core::fail<core::IoError>(
          "the answer broke off: ",
          core::printable(error.is_object() ? error.value("message", "") : core::dump_json(error)));
    }
    if (const json* usage = core::find(event, "usage", "event"); usage && usage->is_object()) {
      answer_.num_tokens = usage->value("completion_tokens", int64_t{0});
      answer_.num_prompt_tokens = usage->value("prompt_tokens", int64_t{0});
    }
    const json choices = event.value("choices", json::array());
    const bool has_text = !choices.empty() && !choices[0].value("text", "").empty();
    if (has_text) answer_.piece_seconds.push_back(seconds_since(begin_));
  }
  void add(std::string_view bytes) {
    lines_.add(bytes, [this](std::string_view data) { take(data); });
  }
  LoadAnswer finish() {
    core::check<core::IoError>(!answer_.piece_seconds.empty(), "an answer without text");
    if (answer_.num_tokens == 0) answer_.num_tokens = std::ssize(answer_.piece_seconds);
    return std::move(answer_);
  }

 private:
  Clock::time_point begin_ = Clock::now();
  EventLines lines_;
  LoadAnswer answer_;
};

class Load {
 public:
  Load(const LoadOptions& options, const std::function<bool()>& is_stopped)
      : options_(options),
        is_stopped_(is_stopped),
        url_(parse_load_url(options.url)),
        client_(url_, options.trusted_file) {}

  LoadResult run() {
    result_.model = options_.model;
    asio::co_spawn(context_, watch(), asio::detached);
    asio::co_spawn(context_, load(), [this](const std::exception_ptr& error) {
      error_ = error;
      context_.stop();
    });
    context_.run();
    result_.seconds = seconds_since(begin_);
    if (error_) rethrow();
    if (result_.answers.empty() && first_error_) {
      error_ = first_error_;
      rethrow();
    }
    return std::move(result_);
  }

 private:
  asio::awaitable<void> watch() {
    asio::steady_timer timer(context_);
    while (!is_stopped_()) {
      timer.expires_after(std::chrono::milliseconds(50));
      co_await timer.async_wait(asio::use_awaitable);
    }
    context_.stop();
  }

  asio::awaitable<void> load() {
    if (result_.model.empty()) result_.model = co_await first_model();
    begin_ = Clock::now();
    if (options_.rate > 0) {
      co_await begin_at_rate();
    } else {
      for (int64_t i = 0; i < options_.num_clients; ++i) {
        ++num_running_;
        asio::co_spawn(context_, ask_again(), asio::detached);
      }
    }
    asio::steady_timer timer(context_);
    while (num_running_ > 0) {
      timer.expires_after(std::chrono::milliseconds(1));
      co_await timer.async_wait(asio::use_awaitable);
    }
  }

  asio::awaitable<std::string> first_model() {
    std::string body;
    LoadRequest request{"GET", url_.path + "/models", options_.api_key, ""};
    LoadClient::Sink sink = [&body](std::string_view bytes) { body += bytes; };
    co_await client_.ask(std::move(request), std::move(sink));
    const json models = core::parse_json(body, "the list of models");
    const json data = models.is_object() ? models.value("data", json::array()) : json::array();
    core::check<core::IoError>(!data.empty() && data[0].is_object() && data[0].contains("id"),
                               "lists no model");
    co_return data[0].value("id", "");
  }

  asio::awaitable<void> ask_again() {
    while (num_begun_ < options_.num_requests) co_await ask(num_begun_++);
    --num_running_;
  }

  asio::awaitable<void> begin_at_rate() {
    std::mt19937_64 random(options_.seed);
    asio::steady_timer timer(context_);
    Clock::time_point next = begin_;
    while (num_begun_ < options_.num_requests) {
      ++num_running_;
      asio::co_spawn(context_, ask_once(num_begun_++), asio::detached);
      const double uniform = static_cast<double>(random() >> 11) * 0x1.0p-53;
      const std::chrono::duration<double> wait(-std::log1p(-uniform) / options_.rate);
      next += std::chrono::duration_cast<Clock::duration>(wait);
      timer.expires_at(next);
      co_await timer.async_wait(asio::use_awaitable);
    }
  }
  asio::awaitable<void> ask_once(int64_t number) {
    co_await ask(number);
    --num_running_;
  }

  asio::awaitable<void> ask(int64_t number) {
    const json body = {{"model", result_.model},
                       {"prompt", prompt_of(options_, number)},
                       {"max_tokens", options_.new_tokens},
                       {"temperature", 0},
                       {"ignore_eos", true},
                       {"stream", true},
                       {"stream_options", {{"include_usage", true}}}};
    try {
      StreamedAnswer answer;
      LoadRequest request{"POST", url_.path + "/completions", options_.api_key,
                          core::dump_json(body)};
      LoadClient::Sink sink = [&answer](std::string_view bytes) { answer.add(bytes); };
      co_await client_.ask(std::move(request), std::move(sink));
      result_.answers.push_back(answer.finish());
    } catch (const std::exception& error) {
      if (result_.num_failed++ > 0) co_return;
      first_error_ = std::current_exception();
      result_.first_failure = error.what();
    }
  }

  // With the server's name before the message.
  [[noreturn]] void rethrow() const {
    const std::string where = core::join("load: ", core::printable(options_.url), ": ");
    try {
      std::rethrow_exception(error_);
    } catch (const core::ConfigError& error) {
      throw core::ConfigError(where + error.what());
    } catch (const std::exception& error) {
      throw core::IoError(where + error.what());
    }
  }

  const LoadOptions& options_;
  const std::function<bool()>& is_stopped_;
  LoadUrl url_;
  LoadClient client_;
  LoadResult result_;
  Clock::time_point begin_ = Clock::now();
  int64_t num_begun_ = 0, num_running_ = 0;
  std::exception_ptr error_, first_error_;
  /// Last: what still runs when it ends uses the others.
  asio::io_context context_;
};

}  // namespace

LoadResult run_load(const LoadOptions& options, const std::function<bool()>& is_stopped) {
  return Load(options, is_stopped).run();
}

}  // namespace weft::serve
