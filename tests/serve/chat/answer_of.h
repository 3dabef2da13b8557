#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "weft/serve/chat/answer_parser.h"

namespace weft::serve::test {

/// An answer that came in pieces, in one line: "reasoning|words|name(arguments)…".
inline std::string answer_in(const AnswerOptions& options,
                             const std::vector<std::string_view>& pieces) {
  AnswerParser parser(options);
  AnswerPiece all;
  const auto add = [&](const AnswerPiece& piece) {
    all.content += piece.content;
    all.reasoning += piece.reasoning;
    add_calls(piece.calls, all.calls);
  };
  for (const std::string_view piece : pieces) add(parser.push(piece));
  add(parser.finish());
  std::string line = all.reasoning + "|" + all.content + "|";
  for (const text::ToolCall& call : all.calls) line += call.name + "(" + call.arguments + ")";
  return line;
}

/// The same wherever the text is cut.
inline std::string answer_of(const AnswerOptions& options, const std::string& text) {
  const std::string whole = answer_in(options, {text});
  const std::string_view view = text;
  for (size_t cut = 1; cut < view.size(); ++cut) {
    const size_t second = cut + (view.size() - cut) / 2;
    const std::vector<std::string_view> parts = {
        view.substr(0, cut), view.substr(cut, second - cut), view.substr(second)};
    EXPECT_EQ(answer_in(options, parts), whole) << "cut at " << cut << " and " << second;
  }
  for (const size_t bytes : {1, 2, 3, 5, 8}) {
    std::vector<std::string_view> parts;
    for (size_t at = 0; at < view.size(); at += bytes) parts.push_back(view.substr(at, bytes));
    EXPECT_EQ(answer_in(options, parts), whole) << "in pieces of " << bytes;
  }
  return whole;
}

/// Reads calls of f and g; f's arguments have the types of their names.
inline AnswerOptions options_of(ToolFormat format) {
  return {.format = format,
          .parses_calls = true,
          .functions = {"f", "g"},
          .parameters = {R"({"type": "object", "properties": {
              "text": {"type": "string"}, "count": {"type": "integer"},
              "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
              "either": {"type": ["integer", "string"]}, "list": {"$ref": "#/$defs/list"},
              "flag": {"type": "boolean"}}, "$defs": {"list": {"type": "array"}}})",
                         ""}};
}

}  // namespace weft::serve::test
