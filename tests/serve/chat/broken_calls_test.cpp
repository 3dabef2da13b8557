// Calls that are written otherwise than most: nothing of an answer gets lost, and none takes long.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "tests/serve/chat/answer_of.h"

namespace weft::serve {
namespace {

using test::answer_of;
using test::options_of;

std::vector<std::string> ids_of(ToolFormat format, const std::string& text) {
  AnswerParser parser(options_of(format));
  AnswerPiece all = parser.push(text);
  add_calls(parser.finish().calls, all.calls);
  std::vector<std::string> ids;
  for (const text::ToolCall& call : all.calls) ids.push_back(call.id);
  return ids;
}

TEST(BrokenCalls, KeepTheIdsThatModelsWrite) {
  using Ids = std::vector<std::string>;
  const std::string begin = "<|tool_call_begin|>", argument = "<|tool_call_argument_begin|>{}",
                    end = "<|tool_call_end|>";
  EXPECT_EQ(ids_of(ToolFormat::kKimi, begin + "functions.f:0" + argument + end + begin + "\ng:12" +
                                          argument + end + begin + "functions.f" + argument + end),
            (Ids{"functions.f:0", "g:12", "functions.f"}));
  EXPECT_EQ(
      ids_of(ToolFormat::kMistral, "[TOOL_CALLS]f[ARGS]{}[TOOL_CALLS]g[CALL_ID]a1b2c3d4e[ARGS]{}"),
      (Ids{"", "a1b2c3d4e"}));
  const std::string list = "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {}, \"id\": ";
  EXPECT_EQ(ids_of(ToolFormat::kMistral, list + "\"a1b2c3d4e\"}]"), Ids{"a1b2c3d4e"});
  EXPECT_EQ(ids_of(ToolFormat::kMistral, list + "\"a1\"}]"), Ids{""});
  EXPECT_EQ(ids_of(ToolFormat::kMistral, list + "123456789}]"), Ids{""});
}

TEST(BrokenCalls, KeepTheSpaceBeforeThem) {
  const AnswerOptions hermes = options_of(ToolFormat::kHermes);
  const std::string call = "<tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>";
  for (const std::string words : {"So.\n\n<tool_call>no</tool_call>",
                                  " \n<tool_call>no</tool_call>\n <tool_call>\nno</tool_call>"}) {
    EXPECT_EQ(answer_of(hermes, words + " \n<tool_call>"), "|" + words + " \n<tool_call>|");
    EXPECT_EQ(answer_of(hermes, call + "\n" + words + " \n"), "|\n" + words + " \n|f({})");
    EXPECT_EQ(answer_of(hermes, words + " \n" + call + " \n"), "|" + words + "|f({})");
  }
  const AnswerOptions kimi = options_of(ToolFormat::kKimi);
  for (const std::string words :
       {"Ok. \n<|tool_call_begin|>functions.h:0{}", "Ok.\n\n<|tool_calls_section_begin|> \n.",
        "\t<|tool_call_begin|> x <|tool_call_end|>\n"}) {
    EXPECT_EQ(answer_of(kimi, words), "|" + words + "|");
  }
}

TEST(BrokenCalls, EndOnce) {
  const std::string call = "<｜tool▁call▁begin｜>g<｜tool▁sep｜>{}\n```";
  const AnswerOptions deepseek = options_of(ToolFormat::kDeepSeekV31);
  EXPECT_EQ(answer_of(deepseek, call + "\n```python"), "|\n```python|g({})");
  EXPECT_EQ(answer_of(deepseek, call + "<｜tool▁call▁end｜>``"), "|``|g({})");
  EXPECT_EQ(answer_of(deepseek, call + "`"), "|`|g({})");
  const AnswerOptions hermes = options_of(ToolFormat::kHermes);
  EXPECT_EQ(answer_of(hermes, "<tool_call>{\"name\": \"f\", \"arguments\": {}}}."), "|}.|f({})");
}

TEST(BrokenCalls, LeaveOutWhatFollowsTheArgumentsInTheirObject) {
  const AnswerOptions hermes = options_of(ToolFormat::kHermes);
  const std::string begin = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 1}";
  EXPECT_EQ(answer_of(hermes, begin + ", \"id\": [\"</tool_call>\", {}]}\n</tool_call>\n" + begin +
                                  "}</tool_call> So."),
            "| So.|f({\"x\": 1})f({\"x\": 1})");
  EXPECT_EQ(answer_of(hermes, begin + " , \"id\": 1</tool_call>."), "|.|f({\"x\": 1})");
  EXPECT_EQ(answer_of(hermes, begin + ", \"id\": \"1"), "||f({\"x\": 1})");
  EXPECT_EQ(answer_of(hermes, begin + ". So"), "|. So|f({\"x\": 1})");
}

TEST(BrokenCalls, MarksInStringsAreLetters) {
  const std::string text = "{\"text\": \"a\\\"</tool_call>\\\\\"}";
  const AnswerOptions hermes = options_of(ToolFormat::kHermes);
  EXPECT_EQ(
      answer_of(hermes, "<tool_call>{\"name\": \"f\", \"arguments\": " + text + "}</tool_call>."),
      "|.|f(" + text + ")");
  EXPECT_EQ(
      answer_of(hermes, "<tool_call>{\"arguments\": " + text + ", \"name\": \"f\"}</tool_call>."),
      "|.|f(" + text + ")");
  const std::string ends = "{\"text\": \"<｜tool▁call▁end｜><｜tool▁calls▁end｜>\"}";
  EXPECT_EQ(answer_of(options_of(ToolFormat::kDeepSeekV31),
                      "<｜tool▁call▁begin｜>f<｜tool▁sep｜>" + ends + "<｜tool▁call▁end｜>."),
            "|.|f(" + ends + ")");
  const std::string channels = "{\"text\": \"<|end|><|start|>assistant<|channel|>\"}";
  EXPECT_EQ(answer_of(options_of(ToolFormat::kHarmony),
                      "<|channel|>commentary to=functions.f<|message|>\n" + channels +
                          "<|end|><|start|>assistant<|channel|>final<|message|>So."),
            "|So.|f(" + channels + ")");
  const AnswerOptions llama = options_of(ToolFormat::kLlama);
  EXPECT_EQ(answer_of(llama,
                      "{\"name\": \"f\", \"parameters\": {\"text\": \";\\\\\"}} ; "
                      "{\"name\": \"g\", \"parameters\": {}}"),
            "||f({\"text\": \";\\\\\"})g({})");
  // A string that never ends is none.
  const std::string words =
      "<tool_call>{\"arguments\": \"</tool_call> a\n<tool_call>[\"</tool_call>";
  EXPECT_EQ(answer_of(hermes, words), "|" + words + "|");
  const std::string call = "<tool_call>{\"arguments\": {}, \"name\": \"g\"}</tool_call>";
  EXPECT_EQ(answer_of(hermes, words + call + "b"), "|" + words + "b|g({})");
}

// A megabyte in single letters: far less than a second, where each is looked at again minutes.
TEST(BrokenCalls, TakeTimeInProportionToTheirText) {
  constexpr size_t kBytes = 1 << 20;
  const std::pair<ToolFormat, std::string> begins[] = {
      {ToolFormat::kQwenCoder, "<tool_call>x"},
      {ToolFormat::kHermes, "<tool_call>{\"x\": \""},
      {ToolFormat::kHermes, "<tool_call>{\"name\": \"f\", \"arguments\": {}"},
      {ToolFormat::kKimi, "<|tool_call_begin|>"},
      {ToolFormat::kMistral, "[TOOL_CALLS]x"},
      {ToolFormat::kHarmony, "<|channel|>"},
      {ToolFormat::kHarmony, "<|channel|>commentary to=functions.f<|message|>"},
      {ToolFormat::kHermes, "a"},
      {ToolFormat::kHermes, ""},
  };
  const auto start = std::chrono::steady_clock::now();
  for (const auto& [format, begin] : begins) {
    for (const std::string letter : {" ", "<"}) {
      AnswerParser parser(options_of(format));
      size_t num_bytes = parser.push(begin).content.size();
      for (size_t i = 0; i < kBytes; ++i) num_bytes += parser.push(letter).content.size();
      num_bytes += parser.finish().content.size();
      EXPECT_LE(num_bytes, begin.size() + kBytes);
    }
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  EXPECT_LT(seconds.count(), 30);
}

}  // namespace
}  // namespace weft::serve
