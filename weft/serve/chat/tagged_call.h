#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "weft/serve/chat/answer_piece.h"
#include "weft/serve/chat/tool_family.h"

namespace weft::serve {

/// The JSON text of a value that stands without quotes and type: a text where its schema has
/// texts and no other type fits, else what it reads as, and a text if it reads as nothing. `schema`
/// is a JSON schema of the function's arguments, empty or damaged ones say nothing.
std::string typed_value(std::string_view text, const std::string& schema, const std::string& key);

/// A call whose arguments stand between tags, without the marks around the call; none if it is no
/// such text.
std::optional<text::ToolCall> read_tagged_call(const CallTags& tags, std::string_view body,
                                               const AnswerOptions& options);

}  // namespace weft::serve
