#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "weft/serve/chat/tool_format.h"
#include "weft/text/chat_template.h"

namespace weft::serve {

/// What a part of an answer's text is.
struct AnswerPiece {
  std::string content;
  /// What a model says to itself between <think> and </think>.
  std::string reasoning;
  std::vector<text::ToolCall> calls;
};

/// Tells an answer's reasoning and calls from its words, as its text comes. What looks like a call
/// and is none stays in the words. Together, the pieces' words, reasoning and calls are the same
/// however the text is cut.
class AnswerParser {
 public:
  struct Options {
    ToolFormat format = ToolFormat::kHermes;
    bool parses_calls = false;
    /// The prompt has begun the reasoning, or the answer is calls alone.
    bool begins_in_reasoning = false;
    bool begins_in_calls = false;
    /// The functions of which an object that no mark tells from words is a call; none: any.
    std::vector<std::string> functions = {};
  };
  explicit AnswerParser(const Options& options);

  AnswerPiece push(std::string_view text);
  /// What was held back: no more text comes.
  AnswerPiece finish();

 private:
  enum class State { kBegin, kReasoning, kWords, kCall };

  bool step(AnswerPiece& piece);
  bool step_begin();
  bool step_until(std::string_view marker, State next, std::string& out);
  bool step_words(AnswerPiece& piece);
  bool step_call(AnswerPiece& piece);
  void end_call(std::string_view body, AnswerPiece& piece);
  bool are_meant(std::string_view text, const std::vector<text::ToolCall>& calls) const;

  Options options_;
  State state_ = State::kBegin;
  std::string pending_;
  /// White space between marks is no part of the words.
  bool strips_space_ = false;
  bool has_calls_ = false;
};

/// The calls that a text of the format is, without its marks; none if it is no such text.
std::vector<text::ToolCall> parse_calls(ToolFormat format, std::string_view text);

}  // namespace weft::serve
