// What a template writes of calls in an assistant's message is read back as the same calls.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/serve/chat/answer_of.h"

namespace weft::serve {
namespace {

using nlohmann::json;

std::string rendered(const std::string& source, const std::vector<text::Message>& messages) {
  text::ChatTemplate::Inputs inputs;
  inputs.messages = messages;
  inputs.add_generation_prompt = false;
  return text::ChatTemplate::parse(source, "t").render_text(inputs);
}

// The calls of a text, as JSON: their texts may differ in white space.
json calls_of(const std::string& source, const std::string& text) {
  AnswerOptions options = test::options_of(tool_format_of(text::ChatTemplate::parse(source, "t")));
  options.functions = {"f", "g", "add", "weather"};
  options.parameters.resize(4);
  AnswerParser parser(options);
  AnswerPiece all = parser.push(text);
  const AnswerPiece last = parser.finish();
  add_calls(last.calls, all.calls);
  EXPECT_EQ(all.content + last.content, "") << text;
  json calls = json::array();
  for (const text::ToolCall& call : all.calls) {
    calls.push_back({call.name, json::parse(call.arguments, nullptr, false)});
  }
  return calls;
}

// What a published template writes between two texts.
std::string part_of(const std::string& source, const std::string& begin, const std::string& end) {
  const std::string text = rendered(source, {{"user", "Hi"}});
  const size_t at = text.rfind(begin) + begin.size();
  return text.substr(at, text.find(end, at) - at);
}

std::string published(const std::string& name) {
  std::ifstream file(WEFT_SOURCE_DIR "/tests/text/data/templates/" + name + ".jinja");
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(RoundTrip, OfPublishedForms) {
  const std::string qwen = published("qwen2_5_tools");
  EXPECT_EQ(calls_of(qwen, part_of(qwen, "<|im_start|>assistant\n", "<|im_end|>")),
            json::parse(R"([["f", {"a": [1, {"b": null}]}], ["g", {}]])"));
  const std::string llama = published("llama3_tools");
  EXPECT_EQ(calls_of(llama, part_of(llama, "assistant<|end_header_id|>\n\n", "<|eot_id|>")),
            json::parse(R"([["add", {"x": 1.5}]])"));
  const std::string deepseek = published("deepseek_r1_tools");
  EXPECT_EQ(calls_of(deepseek, part_of(deepseek, "<｜Assistant｜>", "<｜end▁of▁sentence｜>")),
            json::parse(R"([["f", {"x": 1}], ["g", {}]])"));
  const std::string mistral = published("mistral_nemo_tools");
  EXPECT_EQ(calls_of(mistral, part_of(mistral, "[/INST]", "[TOOL_RESULTS]")),
            json::parse(R"([["weather", {"city": "Köln"}]])"));
  const std::string phi = published("../phi4_mini_tools");
  const text::Message message = {
      "assistant", "", {{"1", "f", R"({"text": "a \"b\"\n", "count": 3})"}, {"2", "g", "{}"}}};
  const std::string text = rendered(phi, {{"user", "Hi"}, message});
  const std::string begin = "<|assistant|>";
  const size_t at = text.find(begin) + begin.size();
  EXPECT_EQ(calls_of(phi, text.substr(at, text.rfind("<|end|>") - at)),
            json::parse(R"([["f", {"text": "a \"b\"\n", "count": 3}], ["g", {}]])"));
}

// The forms in which other families' templates write calls.
TEST(RoundTrip, OfOtherForms) {
  const std::string each =
      "{% for m in messages %}{% for c in m.tool_calls %}{% set f = c.function %}";
  const std::string end = "{% endfor %}{% endfor %}";
  const std::string items = "{% for k, v in f.arguments|items %}";
  const std::string value = "{{ v if v is string else v|tojson }}";
  const std::vector<std::string> sources = {
      each + "<tool_call>{{ f.name }}\n" + items + "<arg_key>{{ k }}</arg_key>\n<arg_value>" +
          value + "</arg_value>\n{% endfor %}</tool_call>" + end,
      each + "\n<tool_call>\n<function={{ f.name }}>\n" + items + "<parameter={{ k }}>\n" + value +
          "\n</parameter>\n{% endfor %}</function>\n</tool_call>" + end,
      each +
          "{% if m['content'] is none %}<｜tool▁call▁begin｜>{{ f['name'] + '<｜tool▁sep｜>' + "
          "f['arguments'] + '<｜tool▁call▁end｜>' }}{% endif %}" +
          end,
      "{% if messages %}<|tool_calls_section_begin|>{% endif %}" + each +
          "<|tool_call_begin|>functions.{{ f.name }}:{{ loop.index0 }}<|tool_call_argument_begin|>"
          "{{ f.arguments|tojson }}<|tool_call_end|>" +
          end + "<|tool_calls_section_end|>",
      each + "[TOOL_CALLS]{{ f.name }}[ARGS]{{ f.arguments|tojson }}" + end,
  };
  const text::Message message = {
      "assistant", "", {{"1", "f", R"({"text": "a \"b\"\n", "count": 3})"}, {"2", "g", "{}"}}};
  for (const std::string& source : sources) {
    EXPECT_EQ(calls_of(source, rendered(source, {message})),
              json::parse(R"([["f", {"text": "a \"b\"\n", "count": 3}], ["g", {}]])"))
        << source;
  }
  const std::string harmony =
      "{% set f = messages[0].tool_calls[0].function %}{{ '<|start|>assistant to=functions.' + "
      "f.name + '<|channel|>commentary json<|message|>' }}{{ f.arguments|tojson }}";
  EXPECT_EQ(calls_of(harmony, rendered(harmony, {message})),
            json::parse(R"([["f", {"text": "a \"b\"\n", "count": 3}]])"));
}

// Kimi's template writes an id for the function's name, of a result, too.
TEST(RoundTrip, OfIds) {
  const std::string source =
      "{% for m in messages %}{% for c in m.tool_calls %}<|tool_call_begin|>{{ c.id }}"
      "<|tool_call_argument_begin|>{{ c.function.arguments | tojson }}<|tool_call_end|>{% endfor %}"
      "{% if m.role == 'tool' %}## Return of {{ m.tool_call_id }}: {{ m.content }}{% endif %}"
      "{% endfor %}";
  const std::string text =
      "<|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"count\": 1}<|tool_call_end|>"
      "<|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{}<|tool_call_end|>";
  AnswerParser parser(test::options_of(ToolFormat::kKimi));
  const auto calls = parser.push(text).calls;
  ASSERT_EQ(calls.size(), 2U);
  EXPECT_EQ(rendered(source, {{"assistant", "", calls}, {"tool", "2", {}, calls[1].id}}),
            text + "## Return of functions.g:1: 2");
}

}  // namespace
}  // namespace weft::serve
