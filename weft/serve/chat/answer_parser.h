#pragma once

#include <string_view>
#include <variant>

#include "weft/serve/chat/answer_piece.h"
#include "weft/serve/chat/harmony_answer.h"
#include "weft/serve/chat/marked_answer.h"

namespace weft::serve {

/// Tells an answer's reasoning and calls from its words, as its text comes. What looks like a call
/// and is none, or is one of a function that was not given, stays in the words; arguments that are
/// told as they come are a call's however they end. Together, the pieces' words, reasoning and
/// calls are the same however the text is cut, and no part of it but marks is left out.
class AnswerParser {
 public:
  using Options = AnswerOptions;
  explicit AnswerParser(const Options& options);

  AnswerPiece push(std::string_view text);
  /// What was held back: no more text comes.
  AnswerPiece finish();

 private:
  std::variant<MarkedAnswer, HarmonyAnswer> answer_;
};

}  // namespace weft::serve
