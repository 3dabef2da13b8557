#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "weft/serve/http/server.h"

namespace weft::serve {

/// One request of a file of requests.
struct BatchRequest {
  /// Which answer is this request's: its custom_id, or "request-N" for the one in line N, from 1.
  std::string id;
  HttpRequest http;
};

/// What a prompt alone is asked with; fields of a body go before it.
struct BatchDefaults {
  int64_t max_tokens = 256;
  double temperature = 0;
  std::optional<int64_t> seed;
};

/// The requests of a text with a JSON value in each line:
///   {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {…}}, as OpenAI's
///   batches have it; or a body alone, {"messages": …} or {"prompt": …}; or a prompt, "…".
/// Empty lines are left out. `where` begins messages. Throws FormatError, naming the line, for what
/// is none of these, for an id that another line has, and for a body that asks for a stream.
std::vector<BatchRequest> read_batch(const std::string& text, const std::string& where,
                                     const BatchDefaults& defaults);

/// The line that tells an answer, with its line break; `number` counts answers. As OpenAI's batches
/// have it, with an answer's error in its body.
std::string batch_line(const std::string& id, uint64_t number, const HttpAnswer& answer);

/// The whole lines of an earlier run that answer a request (status 200).
struct BatchAnswered {
  std::vector<std::string> ids;
  /// These lines.
  std::string lines;
};

/// Reads them; other answers, and a last one that was not written to its end, are left out. Throws
/// FormatError, naming the line, for a line that `batch_line` has not written, or not begun.
BatchAnswered read_answered(const std::string& text, const std::string& where);

}  // namespace weft::serve
