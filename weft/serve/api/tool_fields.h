#pragma once

#include <string>
#include <vector>

#include "weft/serve/api/completion_request.h"
#include "weft/serve/api/fields.h"

namespace weft::serve {

/// Reads `tools`, `tool_choice` and `parallel_tool_calls`. Throws ApiError, 400, as OpenAI's API
/// would. `text` is what the body was parsed from.
void read_tools(Fields& fields, const std::string& text, CompletionRequest& request);

/// Reads `tool_calls` of a message; `where` names that.
std::vector<text::ToolCall> read_calls(Fields& fields, const std::string& where);

}  // namespace weft::serve
