#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace weft::serve {

/// What a server is asked, again and again.
struct LoadOptions {
  /// Where its API begins: http://host:8080/v1, or https; /v1 where it has no path.
  std::string url;
  /// Empty: none is sent.
  std::string api_key;
  /// A PEM file of certificates to trust of an https server; empty: the system's.
  std::string trusted_file;
  /// What requests call the model; empty: the first that the server lists.
  std::string model;
  /// Closed loop: each client asks again as soon as it is answered.
  int64_t num_clients = 1;
  /// Open loop where above 0: requests begin so many times a second, at times drawn as a Poisson
  /// process, whatever else is being answered.
  double rate = 0;
  int64_t num_requests = 32;
  /// Every prompt has so many words, of which the first `shared_words` are the same in all.
  int64_t prompt_words = 512;
  int64_t shared_words = 0;
  /// Of each answer.
  int64_t new_tokens = 128;
  uint64_t seed = 1;
};

/// One answer that came whole.
struct LoadAnswer {
  /// Seconds from the request to each piece of text.
  std::vector<double> piece_seconds;
  /// As the server counts them; else pieces.
  int64_t num_tokens = 0;
  /// As the server counts them; 0 where it doesn't say.
  int64_t num_prompt_tokens = 0;
};

/// What came of a load.
struct LoadResult {
  std::string model;
  std::vector<LoadAnswer> answers;
  double seconds = 0;
  /// Requests without an answer, and why the first of them had none.
  size_t num_failed = 0;
  std::string first_failure;
};

/// Asks the completions of a server of OpenAI's API for streams at temperature 0, past the end of
/// texts where it knows `ignore_eos`. `is_stopped` is asked several times a second; once true, what
/// was answered by then is the result. Throws ConfigError for a URL that is none, and where the
/// server refuses all requests (status 4xx); IoError if it can not be reached or fails them.
LoadResult run_load(const LoadOptions& options, const std::function<bool()>& is_stopped);

}  // namespace weft::serve
