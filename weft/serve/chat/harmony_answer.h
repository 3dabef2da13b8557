#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "weft/serve/chat/answer_piece.h"
#include "weft/serve/chat/call_marks.h"
#include "weft/serve/chat/pending_text.h"

namespace weft::serve {

/// The special tokens of harmony that an answer's parts are told by.
const std::vector<std::string_view>& harmony_marks();

/// Reads an answer in harmony, the form of gpt-oss: messages, each with a header that says its
/// channel and to whom it goes. What goes to functions.NAME is a call, `analysis` is reasoning, all
/// else is words. A message to anybody else stays in the words, with its header.
class HarmonyAnswer {
 public:
  explicit HarmonyAnswer(AnswerOptions options) : options_(std::move(options)) {}

  AnswerPiece push(std::string_view text);
  /// What was held back: no more text comes.
  AnswerPiece finish();

 private:
  enum class State { kBetween, kHeader, kBody };
  enum class Body { kWords, kReasoning, kCall, kCallBegun };

  bool step(AnswerPiece& piece);
  bool step_between();
  bool step_header(AnswerPiece& piece);
  bool step_body(AnswerPiece& piece);
  void begin_body(AnswerPiece& piece);
  bool begin_call(AnswerPiece& piece);
  void give(std::string_view text, AnswerPiece& piece);

  AnswerOptions options_;
  State state_ = State::kBetween;
  Body body_ = Body::kWords;
  PendingText pending_;
  /// Of the call that is being read.
  ObjectScan arguments_;
  /// The last header, and the function that it names.
  std::string header_, function_;
  /// Nothing has been read so far: the prompt ends in the middle of a header.
  bool is_first_ = true;
};

}  // namespace weft::serve
