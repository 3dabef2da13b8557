#pragma once

#include <string>
#include <string_view>

#include "weft/serve/chat/answer_piece.h"
#include "weft/serve/chat/call_marks.h"
#include "weft/serve/chat/pending_text.h"
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
  /// kHead: before a name that arguments follow; kTail: behind these; kMembers: in what else their
  /// object has; kSection: between calls.
  enum class State {
    kBegin,
    kReasoning,
    kWords,
    kOpened,
    kBody,
    kHead,
    kArguments,
    kTail,
    kMembers,
    kSection
  };

  bool step(AnswerPiece& piece);
  bool step_begin();
  bool step_reasoning(AnswerPiece& piece);
  bool step_words(AnswerPiece& piece);
  bool step_opened(AnswerPiece& piece);
  bool step_object(AnswerPiece& piece);
  void begin_arguments(text::ToolCall call, size_t num_bytes, AnswerPiece& piece);
  void begin_body();
  bool step_body(AnswerPiece& piece);
  bool step_head(AnswerPiece& piece);
  bool step_arguments(AnswerPiece& piece);
  bool step_tail();
  bool step_members();
  bool step_section(AnswerPiece& piece);
  bool may_be_bare_call() const;
  std::string_view take_until(std::span<const std::string_view> marks, std::string& out);
  void take_mark(size_t num_bytes, State next);
  void add_words(const std::string& words, AnswerPiece& piece);
  void add_calls(std::vector<text::ToolCall> calls, AnswerPiece& piece);
  void give_up(size_t num_bytes, AnswerPiece& piece);
  void end_body(std::string_view body, std::string_view mark, AnswerPiece& piece);
  bool are_meant(std::string_view text, const std::vector<text::ToolCall>& calls) const;
  void finish_body(const std::string& rest, AnswerPiece& piece);
  void finish_words(const std::string& rest, AnswerPiece& piece);

  AnswerOptions options_;
  const ToolFamily* family_;
  State state_ = State::kBegin;
  PendingText pending_;
  /// White space and marks that were read since the last words or call, which are words if no call
  /// follows.
  std::string held_;
  /// The object that is being read.
  ObjectScan object_;
  /// White space between marks is no part of the words.
  bool strips_space_ = false;
  /// No words have come since the last call.
  bool is_behind_call_ = false;
  /// What may stand between the last call's arguments and its end has come.
  bool has_fence_ = false;
  /// No more text comes.
  bool has_ended_ = false;
};

}  // namespace weft::serve
