#include "weft/text/chat_template.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/text/goldens.h"
#include "weft/core/error.h"

namespace weft::text {
namespace {

using core::ConfigError;
using core::FormatError;

const core::Json& chat_cases() {
  static const core::Json file = read_golden("chat_cases.json");
  return file;
}

ChatTemplate::Inputs inputs_of(const core::Json& conversation, bool add_generation_prompt) {
  ChatTemplate::Inputs inputs{.messages = {},
                              .bos_token = "<s>",
                              .eos_token = "</s>",
                              .add_generation_prompt = add_generation_prompt};
  for (const auto& message : conversation) {
    inputs.messages.push_back(
        {message.at("role").get<std::string>(), message.at("content").get<std::string>()});
  }
  return inputs;
}

std::string template_source(const std::string& name) {
  std::ifstream file(golden_folder() + "/templates/" + name + ".jinja", std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The output as JSON, null for an error of weft, as the goldens have it.
core::Json render_json(const std::string& source, const ChatTemplate::Inputs& inputs) {
  try {
    return ChatTemplate::parse(source, "t").render_text(inputs);
  } catch (const core::Error&) {
    return nullptr;
  }
}

std::string render(const std::string& source, const std::vector<Message>& messages = {}) {
  return ChatTemplate::parse(source, "t")
      .render_text({.messages = messages, .bos_token = "<s>", .eos_token = "</s>"});
}

std::string parse_error(const std::string& source) {
  return message_of<FormatError>([&] { ChatTemplate::parse(source, "m.gguf"); });
}

std::string run_error(const std::string& source) {
  const ChatTemplate compiled = ChatTemplate::parse(source, "m.gguf");
  return message_of<ConfigError>([&] { compiled.render({}); });
}

TEST(ChatTemplate, RendersEveryFamilyAsJinja2Does) {
  const auto& conversations = chat_cases().at("conversations");
  ASSERT_GE(chat_cases().at("templates").size(), 12u);
  for (const auto& [name, outputs] : chat_cases().at("templates").items()) {
    const std::string source = template_source(name);
    ASSERT_FALSE(source.empty());
    for (size_t i = 0; i < conversations.size(); ++i) {
      for (const bool prompt : {false, true}) {
        EXPECT_EQ(render_json(source, inputs_of(conversations[i], prompt)), outputs[i][prompt])
            << name << " conversation " << i;
      }
    }
  }
}

TEST(ChatTemplate, EvaluatesEverySnippetAsJinja2Does) {
  const auto inputs = inputs_of(chat_cases().at("conversations")[2], true);
  ASSERT_GE(chat_cases().at("snippets").size(), 100u);
  for (const auto& snippet : chat_cases().at("snippets")) {
    const auto source = snippet[0].get<std::string>();
    EXPECT_EQ(render_json(source, inputs), snippet[1]) << source;
  }
}

TEST(ChatTemplate, KeepsTypedTextApartFromTheTemplates) {
  const auto pieces =
      ChatTemplate::parse("<|im_start|>{{ messages[0].role + '\\n' ~ messages[0].content }}<|end|>",
                          "t")
          .render({.messages = {{"user", "<|im_end|>"}}, .bos_token = "", .eos_token = ""});
  ASSERT_EQ(pieces.size(), 3u);
  EXPECT_EQ(pieces[0].text, "<|im_start|>user\n");
  EXPECT_TRUE(pieces[0].is_special);
  EXPECT_EQ(pieces[1].text, "<|im_end|>");
  EXPECT_FALSE(pieces[1].is_special);
  EXPECT_EQ(pieces[2].text, "<|end|>");
  EXPECT_TRUE(pieces[2].is_special);
}

// What an expression over the content "  <a>x<b> " makes; typed parts in brackets.
std::string origins(const std::string& expression) {
  const auto pieces =
      ChatTemplate::parse("{% set c = messages[0].content %}" + expression, "t")
          .render({.messages = {{"user", "  <a>x<b> "}}, .bos_token = "<s>", .eos_token = ""});
  std::string out;
  for (const ChatPiece& piece : pieces) {
    out += piece.is_special ? piece.text : "[" + piece.text + "]";
  }
  return out;
}

TEST(ChatTemplate, FollowsTypedTextThroughOperations) {
  const std::pair<const char*, const char*> expectations[] = {
      {"{{ c.strip() }}", "[<a>x<b>]"},
      {"{{ c | trim ~ '!' }}", "[<a>x<b>]!"},
      {"{{ ('<' + c + '>')[1:-1] }}", "[  <a>x<b> ]"},
      {"{{ 'ab'[0] ~ c[2:5] }}", "a[<a>]"},
      {"{{ c.split('x')[0] ~ 'y' }}", "[  <a>]y"},
      {"{{ c.replace('x', 'y') }}", "[  <a>]y[<b> ]"},
      {"{{ 'q'.replace('q', c | trim) }}", "[<a>x<b>]"},
      {"{{ [c | trim, 'z'] | join('-') }}", "[<a>x<b>]-z"},
      {"{{ c | trim | upper ~ 'z' }}", "[<A>X<B>]z"},
      {"{{ [c] | tojson }}", "[[\"  <a>x<b> \"]]"},
      {"{{ [c] }}", "[['  <a>x<b> ']]"},
      {"{% for x in c | trim %}{{ x }}{% endfor %}", "[<a>x<b>]"},
      {"{% set b %}k{{ c | trim }}{% endset %}{{ b }}", "k[<a>x<b>]"},
      {"{% macro m(x) %}k{{ x }}{% endmacro %}{{ m(c | trim) }}", "k[<a>x<b>]"},
      {"{% filter trim %} {{ c }}k{% endfilter %}", "[<a>x<b> ]k"},
      {"{% set ns = namespace(v='') %}{% set ns.v = ns.v + c %}{{ ns.v | trim }}", "[<a>x<b>]"},
      {"{{ c | trim | reverse }}", "[>b<x>a<]"},
      {"{{ {c: 1} | dictsort | first | first | trim }}", "[<a>x<b>]"},
      {"{{ bos_token }}{{ c | length }}", "<s>10"},
      {"{{ 'a' if '<a>' in c else 'b' }}", "a"},
      {"{{ 'a\\nb' | indent(c | trim) }}", "a\n[<a>x<b>]b"},
      {"{{ c | e | trim }}", "[&lt;a&gt;x&lt;b&gt;]"},
      {"{{ c.partition('x') | join('|') | trim }}", "[<a>]|[x]|[<b>]"},
      {"{{ '%' ~ (c | list | last) }}", "%[ ]"},
  };
  for (const auto& [expression, expected] : expectations) {
    EXPECT_EQ(origins(expression), expected) << expression;
  }
}

TEST(ChatTemplate, TrustsOnlyRolesThatItKnows) {
  const ChatTemplate compiled = ChatTemplate::parse("<|{{ messages[0].role }}|>", "t");
  EXPECT_EQ(compiled.render({.messages = {{"user", ""}}, .bos_token = "", .eos_token = ""}).size(),
            1u);
  const auto pieces =
      compiled.render({.messages = {{"im_end", ""}}, .bos_token = "", .eos_token = ""});
  ASSERT_EQ(pieces.size(), 3u);
  EXPECT_FALSE(pieces[1].is_special);
}

TEST(ChatTemplate, ReplacesInvalidUtf8OfMessages) {
  EXPECT_EQ(render("{{ messages[0].content[1:] }}", {{"user", "a\xFF\xE6\x97"}}), "\uFFFD\uFFFD");
}

TEST(ChatTemplate, GetsToolsCallsAndFurtherNames) {
  const ChatTemplate compiled = ChatTemplate::parse(
      "{{ tools | tojson }}|{% for m in messages %}{{ m.role }}:{{ m.content }}"
      "{% for c in m.tool_calls %}{{ c.id }}{{ c.function.name }}{{ c.function.arguments | tojson "
      "}}"
      "{% endfor %}{{ m.tool_call_id }}{{ m.reasoning_content }};{% endfor %}{{ think }}",
      "t");
  ChatTemplate::Inputs inputs;
  inputs.messages = {{"assistant", "", {{"1", "f", R"({"z": 1, "a": [true, null, 0.5]})"}}},
                     {"tool", "done", {}, "1", "", "hm"},
                     {"assistant", "", {{"2", "g", "no JSON"}}}};
  inputs.tools = {R"({"name": "f", "but": 2})"};
  inputs.names = R"({"think": false})";
  EXPECT_EQ(compiled.render_text(inputs),
            "[{\"name\": \"f\", \"but\": 2}]|assistant:1f{\"z\": 1, \"a\": [true, null, 0.5]};"
            "tool:done1hm;assistant:2g\"no JSON\";False");
  EXPECT_TRUE(compiled.mentions("tool_calls"));
  EXPECT_FALSE(compiled.mentions("documents"));
  // What a user typed makes no control token.
  const auto pieces = compiled.render(inputs);
  EXPECT_FALSE(pieces.front().is_special);
  inputs.names = "[1]";
  EXPECT_EQ(message_of<FormatError>([&] { compiled.render(inputs); }),
            "names: expected a JSON object");
}

// Phi-4-mini's published template has tools in the system's message, and no words for calls.
TEST(ChatTemplate, GetsToolsAndCallsInTheWordsOfMessages) {
  const ChatTemplate compiled = ChatTemplate::parse(template_source("../phi4_mini_tools"), "t");
  EXPECT_TRUE(compiled.has_tools_in_messages());
  EXPECT_FALSE(ChatTemplate::parse("{{ tools }}", "t").has_tools_in_messages());
  ChatTemplate::Inputs inputs;
  inputs.messages = {{"user", "Hi"}};
  EXPECT_EQ(compiled.render_text(inputs), "<|user|>Hi<|end|><|assistant|>");
  inputs.tools = {R"({"name": "f"})", R"({"name": "g"})"};
  EXPECT_EQ(compiled.render_text(inputs),
            "<|system|><|tool|>[{\"name\": \"f\"}, {\"name\": \"g\"}]<|/tool|><|end|>"
            "<|user|>Hi<|end|><|assistant|>");
  inputs.tools.pop_back();
  inputs.messages = {{"system", "Be <b>."},
                     {"assistant", "So.", {{"1", "f", R"({"x": "<|end|>"})"}, {"2", "g", "no"}}},
                     {"tool", "done", {}, "1"}};
  std::string origins;
  for (const ChatPiece& piece : compiled.render(inputs)) {
    origins += piece.is_special ? piece.text : "`" + piece.text + "`";
  }
  EXPECT_EQ(origins,
            "<|system|>`Be <b>.`<|tool|>`[{\"name\": \"f\"}]`<|/tool|><|end|><|assistant|>`So.`"
            "<|tool_call|>`[{\"name\": \"f\", \"arguments\": {\"x\": \"<|end|>\"}}, {\"name\": "
            "\"g\", \"arguments\": \"no\"}]`<|/tool_call|><|end|><|tool_response|>`done`<|end|>"
            "<|assistant|>");
}

TEST(ChatTemplate, TellsTheLineOfWhatItCannotParse) {
  EXPECT_EQ(parse_error("a\n{% if x %}\nb"),
            "m.gguf: line 3: expected 'endif', got the end of the "
            "template");
  EXPECT_EQ(parse_error("\n\n{{ 1 | shout }}"),
            "m.gguf: line 3: no filter is named 'shout'; use one that Jinja has");
  EXPECT_EQ(parse_error("{{ 1 is shiny }}"),
            "m.gguf: line 1: no test is named 'shiny'; use one that Jinja has");
  EXPECT_EQ(parse_error("x\n{% include 'y' %}"), "m.gguf: line 2: unknown tag 'include'");
  EXPECT_EQ(parse_error("{{ (1 + 2 }}"), "m.gguf: line 1: unexpected '}', expected ')'");
  EXPECT_EQ(parse_error("{{ 99999999999999999999 }}"),
            "m.gguf: line 1: a number is too large for 64 bits");
  EXPECT_EQ(parse_error("\xFF"), "m.gguf: expected UTF-8, got other bytes; the file is damaged");
}

TEST(ChatTemplate, PassesOnWhatATemplateRefuses) {
  EXPECT_EQ(run_error("a\n{{ raise_exception('roles\nmust alternate') }}"),
            "m.gguf: line 2: the template refuses: roles must alternate");
  EXPECT_EQ(run_error("{{ nothing.at }}"), "m.gguf: line 1: 'nothing' is undefined");
  EXPECT_EQ(run_error("{% if 1 %}\n{{ 1 | shout }}{% endif %}"),
            "m.gguf: line 2: no filter is named 'shout'");
  EXPECT_EQ(run_error("{{ [1].append(2) }}"),
            "m.gguf: line 1: access to attribute 'append' of 'list' object is unsafe");
}

TEST(ChatTemplate, StopsAtItsLimits) {
  const std::string steps = "takes more than the limit of 1000000 steps";
  const std::string length = "more than the limit of 8388608 bytes";
  const std::pair<std::string, std::string> attacks[] = {
      {"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", steps},
      {"{{ range(1000000000) | list }}", "range is longer than the limit of 100000 items"},
      {"{{ range(-9223372036854775807, 9223372036854775807) }}", "range is longer"},
      {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "recursion deeper than the limit of"},
      {"{% for i in range(99999) %}{{ 'x' * 99999 }}{% endfor %}", length},
      {"{{ 'x' * 1000000000 }}", length},
      {"{{ 'x' * 9223372036854775807 }}", length},
      {"{{ [1] * 9223372036854775807 }}", "a list of more than the limit of 1000000 items"},
      {"{{ ('x' * 4000000).replace('x', 'y' * 1000) }}", length},
      {"{{ ('x' * 4000000) | replace('', 'y' * 1000) }}", length},
      {"{{ ('x' * 99999) | list | join('y' * 99999) }}", length},
      {"{{ ('x\\n' * 99999) | indent(99999) }}", length},
      {"{{ 'x'.center(999999999) }}", length},
      {"{{ [['x' * 8000000] * 1000] * 100 }}", "value of more than the limit of 1000000 parts"},
      {"{{ ['x' * 8000000, 'x' * 8000000] }}", length},
      {"{{ ['x' * 8000000, 'x' * 8000000] | tojson }}", length},
      {"{{ [[1] * 1000] * 1000 * 100 }}", "limit of"},
      {"{{ 'x' ~ 'y' * 8388608 }}", length},
      {"{% set ns = namespace(x='a') %}{% for i in range(99999) %}{% set ns.x = ns.x + ns.x %}"
       "{% endfor %}",
       length},
      {"{% set ns = namespace(x=[]) %}{% for i in range(99999) %}{% set ns.x = [ns.x] %}"
       "{% endfor %}",
       "values nested deeper than 100 levels"},
      {"{% set ns = namespace(x='') %}{% for i in range(99999) %}{% set ns.x = ns.x.strip %}"
       "{% endfor %}",
       ""},
      {"{% set ns = namespace(x=[1]) %}{% for i in range(99999) %}{% set ns.x = [ns.x, ns.x] %}"
       "{% if i > 40 %}{{ ns.x == ns.x }}{% endif %}{% endfor %}",
       "limit"},
      {"{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}"
       "{% endfor %}{{ ns.x }}",
       "limit"},
      {"{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}"
       "{% endfor %}{{ ns.x | tojson }}",
       "limit"},
      {"{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}", "nested too deep to print"},
      {"{{ 9223372036854775807 + 1 }}", "does not fit 64 bits"},
      {"{{ 10 ** 10 ** 10 }}", "does not fit 64 bits"},
      {"{{ (-9223372036854775807 - 1) // -1 }}", "does not fit 64 bits"},
      {"{{ dict(range(99999) | map('string') | map('list')) }}", ""},
  };
  for (const auto& [source, expected] : attacks) {
    const std::string message = run_error(source);
    EXPECT_NE(message.find("m.gguf: line 1: "), std::string::npos) << source << " " << message;
    EXPECT_NE(message.find(expected), std::string::npos) << source << " " << message;
    EXPECT_LT(message.size(), 600u);
  }
}

TEST(ChatTemplate, RefusesTemplatesThatAreNestedTooDeep) {
  const auto repeat = [](const std::string& text, size_t times) {
    std::string out;
    for (size_t i = 0; i < times; ++i) out += text;
    return out;
  };
  const size_t many = 100'000;
  const std::string sources[] = {
      "{{ " + repeat("(", many) + "1" + repeat(")", many) + " }}",
      "{{ " + repeat("[", many) + repeat("]", many) + " }}",
      "{{ " + repeat("{1:", many) + "1" + repeat("}", many) + " }}",
      "{{ 1" + repeat(" + 1", many) + " }}",
      "{{ 1" + repeat(" if 1", many) + " }}",
      "{{ 1" + repeat(" if 1 else 1", many) + " }}",
      "{{ " + repeat("not ", many) + "1 }}",
      "{{ " + repeat("-", many) + "1 }}",
      "{{ a" + repeat(".a", many) + " }}",
      "{{ a" + repeat("[a", many) + repeat("]", many) + " }}",
      "{{ a" + repeat("(a", many) + repeat(")", many) + " }}",
      "{{ a" + repeat("|string", many) + " }}",
      "{{ a" + repeat(" is defined", many) + " }}",
      repeat("{% if 1 %}", many) + repeat("{% endif %}", many),
      repeat("{% set x %}", many) + repeat("{% endset %}", many),
      "{% if 1 %}" + repeat("{% elif 1" + repeat(" and 1", 200) + " %}", 10) + "{% endif %}",
  };
  for (const std::string& source : sources) {
    const std::string message = parse_error(source);
    EXPECT_NE(message.find("nested deeper than"), std::string::npos)
        << source.substr(0, 40) << " " << message;
  }
}

TEST(ChatTemplate, RunsTheDeepestTemplatesThatItAccepts) {
  std::string expression = "1";
  for (int i = 0; i < 50; ++i) expression = "(" + expression + " + 1 | int)";
  EXPECT_EQ(render("{{ " + expression + " }}"), "51");
  EXPECT_EQ(render("{% macro m(n) %}{% if n > 0 %}{{ n ~ m(n - 1) }}{% endif %}{% endmacro %}"
                   "{{ m(20) }}"),
            "2019181716151413121110987654321");
}

TEST(ChatTemplate, PrintsTheTimeThatItIsAsked) {
  const std::string year = render("{{ strftime_now('%Y') }}");
  ASSERT_EQ(year.size(), 4u);
  EXPECT_GE(std::stoi(year), 2024);
}

}  // namespace
}  // namespace weft::text
