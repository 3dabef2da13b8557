#pragma once

#include <string>
#include <vector>

#include "weft/serve/chat/tool_format.h"
#include "weft/text/chat_template.h"

namespace weft::serve {

/// What a part of an answer's text is.
struct AnswerPiece {
  std::string content;
  /// What a model says to itself, e.g. between <think> and </think>.
  std::string reasoning;
  /// One without a name goes on with the arguments of the call before it, also of one that came
  /// with an earlier piece.
  std::vector<text::ToolCall> calls;

  /// Goes on with the arguments of the last call.
  void add_arguments(std::string_view text) {
    if (text.empty()) return;
    if (calls.empty()) calls.emplace_back();
    calls.back().arguments += text;
  }
};

/// Appends calls of a piece to those that came before.
inline void add_calls(const std::vector<text::ToolCall>& news, std::vector<text::ToolCall>& calls) {
  for (const text::ToolCall& call : news) {
    if (call.name.empty() && !calls.empty()) {
      calls.back().arguments += call.arguments;
    } else {
      calls.push_back(call);
    }
  }
}

/// How an answer is read.
struct AnswerOptions {
  ToolFormat format = ToolFormat::kHermes;
  bool parses_calls = false;
  /// The prompt has begun the reasoning, or the answer is calls alone.
  bool begins_in_reasoning = false;
  bool begins_in_calls = false;
  /// The functions that may be called; a call of any other stays in the words. None: any.
  std::vector<std::string> functions = {};
  /// The JSON schemas of their arguments, in the same order, for families that write values
  /// without types; empty: none.
  std::vector<std::string> parameters = {};

  bool is_given(std::string_view function) const {
    if (functions.empty()) return !function.empty();
    for (const std::string& name : functions) {
      if (name == function) return true;
    }
    return false;
  }
};

}  // namespace weft::serve
