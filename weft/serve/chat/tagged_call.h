#pragma once

#include <optional>
#include <string_view>

#include "weft/serve/chat/answer_piece.h"
#include "weft/serve/chat/tool_family.h"

namespace weft::serve {

/// A call whose arguments stand between tags, without the marks around the call; none if it is no
/// such text. Values have the types that the function's schema gives them; one that is damaged says
/// nothing.
std::optional<text::ToolCall> read_tagged_call(const CallTags& tags, std::string_view body,
                                               const AnswerOptions& options);

}  // namespace weft::serve
