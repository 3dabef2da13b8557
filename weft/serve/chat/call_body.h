#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "weft/serve/chat/answer_piece.h"
#include "weft/serve/chat/tool_family.h"

namespace weft::serve {

/// The calls that a whole text is, without the marks around it; none if it is no such text or has
/// one of a function that was not given. Llama's objects are calls of any function.
std::vector<text::ToolCall> read_calls_of(const ToolFamily& family, std::string_view body,
                                          const AnswerOptions& options);

/// The call that is named before its arguments, without these: its id is empty where the head has
/// none, its name if it is of no function that was given.
text::ToolCall call_of_head(const ToolFamily& family, std::string_view head,
                            const AnswerOptions& options);

}  // namespace weft::serve
