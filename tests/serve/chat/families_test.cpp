#include <gtest/gtest.h>

#include <string>

#include "tests/serve/chat/answer_of.h"
#include "weft/serve/chat/tool_family.h"

namespace weft::serve {
namespace {

using test::answer_of;
using test::options_of;

TEST(Families, AreKnownByTheirTemplates) {
  const auto format = [](const std::string& words) {
    return tool_format_of(text::ChatTemplate::parse("{{ '" + words + "' }}", "t"));
  };
  EXPECT_EQ(format("<|start|><|channel|><|message|>"), ToolFormat::kHarmony);
  EXPECT_EQ(format("<tool_call><arg_key>"), ToolFormat::kGlm);
  EXPECT_EQ(format("<tool_call><function=f><parameter=x>"), ToolFormat::kQwenCoder);
  EXPECT_EQ(format("function<｜tool▁sep｜>f ```json"), ToolFormat::kDeepSeek);
  EXPECT_EQ(format("<｜tool▁sep｜>"), ToolFormat::kDeepSeekV31);
  EXPECT_EQ(format("<|tool_call_begin|><|tool_call_argument_begin|>"), ToolFormat::kKimi);
  EXPECT_EQ(format("<|tool_list_start|>"), ToolFormat::kLfm2);
  EXPECT_EQ(format("<|tool_call>call:<tool_call|>"), ToolFormat::kGemma4);
  EXPECT_EQ(format("<start_function_call>"), ToolFormat::kFunctionGemma);
  EXPECT_EQ(format("<|tool_call|>"), ToolFormat::kPhi4);
  EXPECT_EQ(format("<|tool|> + message.tools + <|/tool|>"), ToolFormat::kPhi4);
  EXPECT_EQ(format("<|START_ACTION|>"), ToolFormat::kCommand);
}

TEST(Families, GlmWritesArgumentsByTheirKeys) {
  const AnswerOptions glm = options_of(ToolFormat::kGlm);
  EXPECT_EQ(answer_of(glm,
                      "<think>Hm.</think>\nI look.\n<tool_call>f\n<arg_key>text</arg_key>\n"
                      "<arg_value>12 <b>\n</arg_value>\n<arg_key>count</arg_key>\n"
                      "<arg_value>12</arg_value>\n</tool_call>\n<tool_call>g</tool_call>"),
            "Hm.|I look.|f({\"text\": \"12 <b>\\n\", \"count\": 12})g({})");
  EXPECT_EQ(
      answer_of(glm, "<tool_call>f<arg_key>flag</arg_key><arg_value>True</arg_value></tool_call>"),
      "||f({\"flag\": true})");
  // What is broken, of no function that was given, or without an end, is words.
  for (const char* words :
       {"<tool_call>f\n<arg_key>text</arg_key></tool_call>", "<tool_call>h\n</tool_call>",
        "<tool_call>f\n<arg_key>text</arg_key>\n<arg_value>1", "<tool_call>f f\n</tool_call>"}) {
    EXPECT_EQ(answer_of(glm, words), std::string("|") + words + "|");
  }
}

// Each of its choices leads to all of them again.
TEST(Families, ASchemaThatLeadsToItselfIsReadOnce) {
  AnswerOptions glm = options_of(ToolFormat::kGlm);
  std::string choices = R"({"type": "string"})";
  for (int i = 0; i < 50; ++i) choices += R"(, {"$ref": "#/$defs/a"})";
  glm.parameters[0] = R"({"properties": {"x": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"anyOf": [)" +
                      choices + "]}}}";
  EXPECT_EQ(answer_of(glm, "<tool_call>f<arg_key>x</arg_key><arg_value>12</arg_value></tool_call>"),
            "||f({\"x\": \"12\"})");
}

TEST(Families, QwenCoderWritesArgumentsByTheirTags) {
  const AnswerOptions qwen = options_of(ToolFormat::kQwenCoder);
  EXPECT_EQ(
      answer_of(qwen,
                "So.\n\n<tool_call>\n<function=f>\n<parameter=text>\nint main() {\n  return 0;\n}\n"
                "</parameter>\n<parameter=list>\n[1, {\"a\": 2}]\n</parameter>\n</function>\n"
                "</tool_call>\n<tool_call>\n<function=g>\n</function>\n</tool_call>"),
      "|So.|f({\"text\": \"int main() {\\n  return 0;\\n}\", \"list\": [1, {\"a\": 2}]})g({})");
  const auto value = [&](const std::string& key, const std::string& text) {
    return answer_of(qwen, "<tool_call>\n<function=f>\n<parameter=" + key + ">\n" + text +
                               "\n</parameter>\n</function>\n</tool_call>");
  };
  EXPECT_EQ(value("text", "true"), "||f({\"text\": \"true\"})");
  EXPECT_EQ(value("text", "\n"), "||f({\"text\": \"\\n\"})");
  EXPECT_EQ(value("maybe", "null"), "||f({\"maybe\": null})");
  EXPECT_EQ(value("maybe", "7"), "||f({\"maybe\": \"7\"})");
  EXPECT_EQ(value("either", "7"), "||f({\"either\": 7})");
  EXPECT_EQ(value("either", "x"), "||f({\"either\": \"x\"})");
  EXPECT_EQ(value("list", "['a', None]"), "||f({\"list\": [\"a\", null]})");
  EXPECT_EQ(value("count", "many"), "||f({\"count\": \"many\"})");
  EXPECT_EQ(value("unknown", "{\"a\":1}"), "||f({\"unknown\": {\"a\":1}})");
  const std::string cut = "<tool_call>\n<function=f>\n<parameter=text>\nab";
  EXPECT_EQ(answer_of(qwen, cut), "|" + cut + "|");
}

TEST(Families, DeepSeekWritesNamesBeforeArguments) {
  const std::string begin = "<｜tool▁call▁begin｜>", sep = "<｜tool▁sep｜>",
                    end = "<｜tool▁call▁end｜>", all = "<｜tool▁calls▁begin｜>",
                    over = "<｜tool▁calls▁end｜>";
  const std::string v3 = begin + "function" + sep + "f\n```json\n{\"text\": \"```}\"}\n```" + end;
  const AnswerOptions deepseek = options_of(ToolFormat::kDeepSeek);
  EXPECT_EQ(answer_of(deepseek, "I look." + all + v3 + "\n" + v3 + over),
            "|I look.|f({\"text\": \"```}\"})f({\"text\": \"```}\"})");
  const AnswerOptions v31 = options_of(ToolFormat::kDeepSeekV31);
  const std::string call = begin + "g" + sep + "{\"x\": [1, {}]}" + end;
  EXPECT_EQ(answer_of(v31, "<think>a</think>b" + all + call + call + over + "c"),
            "a|bc|g({\"x\": [1, {}]})g({\"x\": [1, {}]})");
  // The model may leave out the marks around all calls, or write the other form.
  EXPECT_EQ(answer_of(v31, v3 + "\n"), "||f({\"text\": \"```}\"})");
  const std::string unknown = all + begin + "h" + sep + "{}" + end + over;
  EXPECT_EQ(answer_of(v31, unknown), "|" + unknown + "|");
  EXPECT_EQ(answer_of(v31, all + over + "."), "|" + all + over + ".|");
  // Arguments that were begun stay a call's.
  EXPECT_EQ(answer_of(v31, all + begin + "g" + sep + "{\"x\": \"lo"), "||g({\"x\": \"lo)");
  EXPECT_EQ(answer_of(v31, all + begin + "g" + sep + "{\"x\": " + end + over + "d"),
            "|d|g({\"x\": )");
  EXPECT_EQ(answer_of(v31, all + begin + "g" + sep), "|" + all + begin + "g" + sep + "|");
}

TEST(Families, KimiAndMistralWriteNamesBeforeArguments) {
  const AnswerOptions kimi = options_of(ToolFormat::kKimi);
  const std::string argument = "<|tool_call_argument_begin|>";
  EXPECT_EQ(
      answer_of(kimi, "Let me.<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0" +
                          argument + "{\"count\": 1}<|tool_call_end|><|tool_call_begin|>g:12" +
                          argument + " {} <|tool_call_end|><|tool_calls_section_end|>"),
      "|Let me.|f({\"count\": 1})g({})");
  const std::string other = "<|tool_call_begin|>functions.h:0" + argument + "{}<|tool_call_end|>";
  EXPECT_EQ(answer_of(kimi, other), "|" + other + "|");
  const AnswerOptions mistral = options_of(ToolFormat::kMistral);
  EXPECT_EQ(answer_of(mistral, "Ok.[TOOL_CALLS]f[ARGS]{\"text\": \"[TOOL_CALLS]\"}"),
            "|Ok.|f({\"text\": \"[TOOL_CALLS]\"})");
  EXPECT_EQ(answer_of(mistral,
                      "[TOOL_CALLS]f[ARGS]{\"count\": 2}[TOOL_CALLS]g[CALL_ID]a1b2c3d4e[ARGS]{}\n"),
            "||f({\"count\": 2})g({})");
  EXPECT_EQ(answer_of(mistral, "[TOOL_CALLS] [{\"name\": \"h\", \"arguments\": {}}]"),
            "|[TOOL_CALLS] [{\"name\": \"h\", \"arguments\": {}}]|");
  EXPECT_EQ(answer_of(mistral, "[TOOL_CALLS]h[ARGS]{}"), "|[TOOL_CALLS]h[ARGS]{}|");
}

TEST(Families, Lfm2WritesCallsAsPythonDoes) {
  const AnswerOptions lfm2 = options_of(ToolFormat::kLfm2);
  const auto call = [&](const std::string& body) {
    return answer_of(lfm2, "<|tool_call_start|>" + body + "<|tool_call_end|>So.");
  };
  EXPECT_EQ(call("[f(text=\"a, (b)\", count=-3), g()]"),
            "|So.|f({\"text\": \"a, (b)\", \"count\": -3})g({})");
  EXPECT_EQ(call("f(list=['a\\'b', 1.5e3, (True, None)], flag=False,)"),
            "|So.|f({\"list\": [\"a'b\", 1.5e3, [true, null]], \"flag\": false})");
  EXPECT_EQ(call("[f(x={'a': {\"b\": []}, 1: 2})]"),
            "|So.|f({\"x\": {\"a\": {\"b\": []}, \"1\": 2}})");
  EXPECT_EQ(call("[f(text='\\u00e9\\n\\q')]"), "|So.|f({\"text\": \"é\\n\\\\q\"})");
  EXPECT_EQ(call("[{\"name\": \"f\", \"arguments\": {\"count\": 1}}]"), "|So.|f({\"count\": 1})");
  for (const char* words : {"[f(3)]", "[f(text=)]", "[h()]", "[f(text='a)]", "[f()] g()", ""}) {
    EXPECT_EQ(call(words), std::string("|<|tool_call_start|>") + words + "<|tool_call_end|>So.|");
  }
}

TEST(Families, GemmaWritesNamesWithoutQuotes) {
  const AnswerOptions gemma = options_of(ToolFormat::kGemma4);
  EXPECT_EQ(answer_of(gemma,
                      "<|channel>thought\nHm.<channel|><|tool_call>call:f{text:<|\"|>a \"b\" "
                      "{c}<|\"|>,count:4,list:[<|\"|>x<|\"|>,{k:true}]}<tool_call|>"
                      "<|tool_call>call:g{}<tool_call|>"),
            "\nHm.||f({\"text\": \"a \\\"b\\\" {c}\", \"count\": 4, \"list\": [\"x\", {\"k\": "
            "true}]})g({})");
  EXPECT_EQ(answer_of(gemma, "<|tool_call>call:f{\"text\": \"a\"}<tool_call|>"),
            "||f({\"text\": \"a\"})");
  const std::string broken = "<|tool_call>call:f{text:<|\"|>a}<tool_call|>";
  EXPECT_EQ(answer_of(gemma, broken), "|" + broken + "|");
  const AnswerOptions function = options_of(ToolFormat::kFunctionGemma);
  EXPECT_EQ(
      answer_of(function,
                "<start_function_call>call:f{text:<escape>London<escape>}<end_function_call>"),
      "||f({\"text\": \"London\"})");
}

TEST(Families, PhiAndCommandWriteListsOfObjects) {
  const AnswerOptions phi = options_of(ToolFormat::kPhi4);
  EXPECT_EQ(answer_of(phi, "<|tool_call|>[{\"name\": \"f\", \"arguments\": {}}]<|/tool_call|>"),
            "||f({})");
  EXPECT_EQ(answer_of(phi, "<|tool_call|>[{\"name\": \"f\", \"arguments\": {}}]"), "||f({})");
  const AnswerOptions command = options_of(ToolFormat::kCommand);
  EXPECT_EQ(
      answer_of(command,
                "<|START_THINKING|>Hm.<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": "
                "\"0\", \"tool_name\": \"g\", \"parameters\": {\"x\": 1}}\n]<|END_ACTION|>"),
      "Hm.||g({\"x\": 1})");
}

TEST(Families, HermesObjectsAreToldAsTheyComeWhereTheyBeginAsMostDo) {
  const AnswerOptions hermes = options_of(ToolFormat::kHermes);
  const std::string begin = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": ";
  EXPECT_EQ(answer_of(hermes,
                      "So.\n" + begin + "\"}</\"}}\n</tool_call>\n" + begin + "2}}</tool_call>\n"),
            "|So.|f({\"x\": \"}</\"})f({\"x\": 2})");
  EXPECT_EQ(answer_of(hermes, "<tool_call>{\"name\":\"g\",\"arguments\":{}}</tool_call>."),
            "|.|g({})");
  EXPECT_EQ(answer_of(hermes, begin + "1"), "||f({\"x\": 1)");
  EXPECT_EQ(answer_of(hermes, begin + "1}"), "||f({\"x\": 1})");
  EXPECT_EQ(answer_of(hermes, begin + "</tool_call>."), "|.|f({\"x\": )");
  // Other orders, texts and functions are read once they are whole.
  EXPECT_EQ(answer_of(hermes, "<tool_call>{\"arguments\": {}, \"name\": \"f\"}</tool_call>"),
            "||f({})");
  EXPECT_EQ(answer_of(hermes, "<tool_call>{\"name\": \"f\", \"arguments\": \"{}\"}</tool_call>"),
            "||f({})");
  for (const char* words : {"<tool_call>{\"name\": \"h\", \"arguments\": {}}</tool_call>",
                            "<tool_call>{\"name\": \"f\", \"arg", "<tool_call>",
                            "<tool_call>\n{\"name\": \"f\", \"arguments\": [1]"}) {
    EXPECT_EQ(answer_of(hermes, words), std::string("|") + words + "|");
  }
}

TEST(Families, ArgumentsComeAsTheyAreWritten) {
  AnswerParser parser(options_of(ToolFormat::kDeepSeekV31));
  EXPECT_TRUE(parser.push("<｜tool▁call▁begin｜>g<｜tool▁sep｜>").calls.empty());
  const AnswerPiece first = parser.push("{\"x\": ");
  ASSERT_EQ(first.calls.size(), 1U);
  EXPECT_EQ(first.calls[0].name, "g");
  EXPECT_EQ(first.calls[0].arguments, "{\"x\": ");
  const AnswerPiece second = parser.push("1}<｜tool▁call▁end｜>");
  ASSERT_EQ(second.calls.size(), 1U);
  EXPECT_EQ(second.calls[0].name, "");
  EXPECT_EQ(second.calls[0].arguments, "1}");
}

}  // namespace
}  // namespace weft::serve
