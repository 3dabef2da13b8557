#pragma once

#include <string>
#include <string_view>

#include "weft/serve/chat/answer_piece.h"
#include "weft/serve/chat/call_marks.h"
#include "weft/serve/chat/tool_family.h"

namespace weft::serve {

/// Reads an answer whose reasoning and calls stand between marks, as the family's row says.
class MarkedAnswer {
 public:
  explicit MarkedAnswer(AnswerOptions options);

  AnswerPiece push(std::string_view text);
  /// What was held back: no more text comes.
  AnswerPiece finish();

 private:
  /// kOpened: behind a mark of calls; kBody: in the text of calls that is read once it is whole;
  /// kHead: before a name that arguments follow; kTail: behind these; kSection: between calls.
  enum class State {
    kBegin,
    kReasoning,
    kWords,
    kOpened,
    kBody,
    kHead,
    kArguments,
    kTail,
    kSection
  };

  bool step(AnswerPiece& piece);
  bool step_begin();
  bool step_reasoning(AnswerPiece& piece);
  bool step_words(AnswerPiece& piece);
  bool step_opened(AnswerPiece& piece);
  bool step_object(AnswerPiece& piece);
  void begin_arguments(const std::string& name, size_t num_bytes, AnswerPiece& piece);
  bool step_body(AnswerPiece& piece);
  bool step_head(AnswerPiece& piece);
  bool step_arguments(AnswerPiece& piece);
  bool step_tail();
  bool step_section(AnswerPiece& piece);
  bool may_be_bare_call() const;
  /// Gives out what stands before a mark, and goes past it to another state.
  bool take_until(std::span<const std::string_view> marks, State next, std::string& out);
  void take_mark(size_t num_bytes, State next);
  void give_up(size_t num_bytes, AnswerPiece& piece);
  void end_body(std::string_view body, std::string_view mark, AnswerPiece& piece);
  bool are_meant(std::string_view text, const std::vector<text::ToolCall>& calls) const;
  void finish_body(const std::string& rest, AnswerPiece& piece);

  AnswerOptions options_;
  const ToolFamily* family_;
  State state_ = State::kBegin;
  std::string pending_;
  /// Marks that were read since the last call, which are words if no call follows.
  std::string marks_;
  ObjectScan arguments_;
  /// White space between marks is no part of the words.
  bool strips_space_ = false;
  bool has_calls_ = false;
};

}  // namespace weft::serve
