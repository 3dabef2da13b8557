#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "weft/core/error.h"
#include "weft/serve/chat/answer_parser.h"
#include "weft/serve/chat/member_text.h"
#include "weft/serve/chat/tool_format.h"

namespace weft::serve {
namespace {

using nlohmann::json;

// What an answer is, in one line: "reasoning|words|name(arguments)…".
std::string told(const AnswerParser::Options& options, const std::string& text,
                 size_t piece_bytes) {
  AnswerParser parser(options);
  AnswerPiece all;
  const auto add = [&](const AnswerPiece& piece) {
    all.content += piece.content;
    all.reasoning += piece.reasoning;
    add_calls(piece.calls, all.calls);
  };
  for (size_t begin = 0; begin < text.size(); begin += piece_bytes) {
    add(parser.push(std::string_view(text).substr(begin, piece_bytes)));
  }
  add(parser.finish());
  std::string line = all.reasoning + "|" + all.content + "|";
  for (const text::ToolCall& call : all.calls) line += call.name + "(" + call.arguments + ")";
  return line;
}

// The same however the text is cut.
std::string told(const AnswerParser::Options& options, const std::string& text) {
  const std::string whole = told(options, text, text.size() + 1);
  for (const size_t bytes : {1, 2, 3, 7}) EXPECT_EQ(told(options, text, bytes), whole) << bytes;
  return whole;
}

TEST(AnswerParser, LeavesPlainWordsAsTheyAre) {
  EXPECT_EQ(told({}, "  Hello <b>you</b>.\n"), "|  Hello <b>you</b>.\n|");
  EXPECT_EQ(told({.parses_calls = true}, " a < b <tool_cal and { \n"),
            "| a < b <tool_cal and { \n|");
  EXPECT_EQ(told({}, "<tool_call>x</tool_call>"), "|<tool_call>x</tool_call>|");
  EXPECT_EQ(told({}, "<thin"), "|<thin|");
}

TEST(AnswerParser, TellsReasoningFromWords) {
  EXPECT_EQ(told({}, "<think>Let me see.</think>\n\nYes."), "Let me see.|Yes.|");
  EXPECT_EQ(told({.begins_in_reasoning = true}, "Let me see.</think>Yes."), "Let me see.|Yes.|");
  EXPECT_EQ(told({}, "<think>For ever"), "For ever||");
}

TEST(AnswerParser, ReadsCallsOfHermes) {
  const AnswerParser::Options hermes{.parses_calls = true};
  const std::string call =
      "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"z\": 1, \"a\": [2]}}\n"
      "</tool_call>";
  EXPECT_EQ(told(hermes, "I look.\n" + call), "|I look.|f({\"z\": 1, \"a\": [2]})");
  EXPECT_EQ(told(hermes, call + "\n" + call + "\n"),
            "||f({\"z\": 1, \"a\": [2]})f({\"z\": 1, \"a\": [2]})");
  EXPECT_EQ(told(hermes, "<think>t</think>" + call), "t||f({\"z\": 1, \"a\": [2]})");
  // The end mark is missing; what is no call stays.
  EXPECT_EQ(told(hermes, "<tool_call>{\"name\": \"g\", \"arguments\": \"{}\"}"), "||g({})");
  EXPECT_EQ(told(hermes, "<tool_call>no</tool_call>"), "|<tool_call>no</tool_call>|");
  EXPECT_EQ(told(hermes, "<tool_call>no"), "|<tool_call>no|");
}

TEST(AnswerParser, ReadsCallsOfLlamaAndMistral) {
  const AnswerParser::Options llama{.format = ToolFormat::kLlama, .parses_calls = true};
  EXPECT_EQ(told(llama, "{\"name\": \"f\", \"parameters\": {\"x\": \";\"}}"),
            "||f({\"x\": \";\"})");
  EXPECT_EQ(told(llama,
                 "<|python_tag|>{\"name\": \"f\", \"parameters\": {}}; "
                 "{\"name\": \"g\", \"parameters\": {}}"),
            "||f({})g({})");
  EXPECT_EQ(told(llama, "{\"a\": 1}"), "|{\"a\": 1}|");
  EXPECT_EQ(told(llama, "Hi {you}"), "|Hi {you}|");
  const std::string person = "{\"name\": \"Bob\", \"age\": 3}";
  const AnswerParser::Options of_f{
      .format = ToolFormat::kLlama, .parses_calls = true, .functions = {"f"}};
  EXPECT_EQ(told(of_f, person), "|" + person + "|");
  EXPECT_EQ(told(of_f, "{\"name\": \"f\"}"), "||f({})");
  EXPECT_EQ(told(of_f, "<|python_tag|>" + person), "||Bob({})");
  const AnswerParser::Options mistral{.format = ToolFormat::kMistral, .parses_calls = true};
  EXPECT_EQ(told(mistral,
                 "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"x\": 1}}, "
                 "{\"name\": \"g\", \"arguments\": {}}]"),
            "||f({\"x\": 1})g({})");
  EXPECT_EQ(told(mistral, "[TOOL_CALLS]f[ARGS]{\"x\": 1}"), "||f({\"x\": 1})");
  EXPECT_EQ(told(mistral, "[TOOL_CALLS][1"), "|[TOOL_CALLS][1|");
}

TEST(MemberText, KeepsTheOrderOfTheText) {
  const std::string body = R"( {"a": "}\"", "b" : {"z":1, "c": [ {"y": 2}, 3 ] }, "d": -1.5e3} )";
  EXPECT_EQ(member_text(body, {"b"}), R"({"z":1, "c": [ {"y": 2}, 3 ] })");
  EXPECT_EQ(member_text(body, {"b", "z"}), "1");
  EXPECT_EQ(member_text(body, {"d"}), "-1.5e3");
  EXPECT_EQ(member_text(body, {"b", "x"}), std::nullopt);
  EXPECT_EQ(member_text("[1]", {"b"}), std::nullopt);
  EXPECT_EQ(element_texts(*member_text(body, {"b", "c"})),
            (std::vector<std::string>{R"({"y": 2})", "3"}));
  EXPECT_TRUE(element_texts("[]").empty());
}

TEST(Tools, AreSaidInWordsWhereATemplateHasNone) {
  const Tool tool{"f", "", "", false, R"({"type": "function"})"};
  const std::vector<text::Message> said =
      with_tools_in_words({{"system", "Be brief."},
                           {"user", "Go."},
                           {"assistant", "", {{"1", "f", "{\"x\": 1}"}}},
                           {"tool", "done"}},
                          {tool});
  ASSERT_EQ(said.size(), 4U);
  EXPECT_TRUE(said[0].content.starts_with("Be brief.\n\nYou may call"));
  EXPECT_NE(said[0].content.find("\n{\"type\": \"function\"}\n"), std::string::npos);
  EXPECT_EQ(said[2].content,
            "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}}\n</tool_call>");
  EXPECT_TRUE(said[2].tool_calls.empty());
  EXPECT_EQ(said[3].role, "user");
  EXPECT_EQ(said[3].content, "<tool_response>\ndone\n</tool_response>");
  const json tag = json::parse(
      structural_tag_of(ToolFormat::kHermes, {tool}, {ToolChoice::Kind::kRequired, "f", true}));
  EXPECT_EQ(tag["format"]["tags"][0]["begin"], "<tool_call>\n{\"name\": \"f\", \"arguments\": ");
  EXPECT_EQ(tag["format"]["stop_after_first"], true);
}

TEST(Tools, HaveTheFormThatATemplateShows) {
  const auto format = [](const std::string& source) {
    return tool_format_of(text::ChatTemplate::parse(source, "t"));
  };
  EXPECT_EQ(format("{{ '[TOOL_CALLS]' }}"), ToolFormat::kMistral);
  EXPECT_EQ(format("{{ '<tool_call>' }}"), ToolFormat::kHermes);
  EXPECT_EQ(format("{{ '<|python_tag|>' }}"), ToolFormat::kLlama);
  EXPECT_EQ(format("x"), ToolFormat::kHermes);
}

}  // namespace
}  // namespace weft::serve
