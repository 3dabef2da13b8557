#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "weft/serve/api/completion_request.h"

namespace weft::serve {

/// What /v1/responses is asked for.
struct ResponseRequest {
  CompletionRequest completion;
  /// What a response says of its request: instructions, temperature, tools, text, ….
  nlohmann::json echo;
};

/// Reads a request's body, whose conversation becomes a chat. Throws ApiError, 400, naming the
/// field, for what this server does not do: conversations that are kept, tools that are no
/// functions, inputs that are no text. `text` is what `body` was parsed from.
ResponseRequest read_response_request(const nlohmann::json& body, const std::string& text);

}  // namespace weft::serve
