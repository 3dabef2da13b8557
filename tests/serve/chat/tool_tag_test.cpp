// What a grammar lets a model call is what the parser reads.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/serve/chat/answer_of.h"
#include "weft/grammar/grammar.h"
#include "weft/serve/chat/tool_family.h"
#include "weft/text/bpe/byte_alphabet.h"
#include "weft/text/unicode/utf8.h"

namespace weft::serve {
namespace {

using test::answer_of;

const std::vector<Tool>& tag_tools() {
  static const std::vector<Tool> tools = {
      {"f", "",
       R"({"type": "object", "properties": {"text": {"type": "string"}, "count": {"type": "integer"}},
           "required": ["text", "count"]})",
       false, ""},
      {"g", "", "", false, ""}};
  return tools;
}

// A token for each byte, an end, and the family's marks as special tokens.
struct TagGrammar {
  // `words`: of the answer, of which with kNone there is nothing else.
  TagGrammar(ToolFormat format, bool has_special, ToolChoice choice, bool reasons = false,
             const grammar::Source* words = nullptr)
      : options({.format = format,
                 .parses_calls = true,
                 .begins_in_reasoning = reasons,
                 .begins_in_calls = choice.kind == ToolChoice::Kind::kRequired,
                 .functions = {"f", "g"},
                 .parameters = {tag_tools()[0].parameters, ""}}) {
    text::Vocabulary vocabulary;
    vocabulary.pre_tokenizer = "gpt-2";
    for (int byte = 0; byte < 256; ++byte) {
      vocabulary.tokens.emplace_back();
      text::append_utf8(vocabulary.tokens.back(), text::byte_to_letter(static_cast<uint8_t>(byte)));
    }
    vocabulary.kinds.assign(256, text::TokenKind::kNormal);
    vocabulary.tokens.emplace_back("<eos>");
    if (has_special) {
      for (const std::string_view mark : marks_of(tool_family(format))) {
        // Tags of arguments are ordinary tokens.
        const bool is_tag =
            tool_family(format).form == CallForm::kTagged && !mark.ends_with("call>");
        if (is_tag) continue;
        marks[std::string(mark)] = static_cast<int64_t>(vocabulary.tokens.size());
        vocabulary.tokens.emplace_back(mark);
      }
    }
    // One more token of harmony, without which <|end|> would be an end.
    vocabulary.tokens.emplace_back("<|return|>");
    vocabulary.kinds.resize(vocabulary.tokens.size(), text::TokenKind::kControl);
    vocabulary.eos = 256;
    const auto tokenizer = text::Tokenizer::make(vocabulary, "test");
    const bool has_tools = choice.kind != ToolChoice::Kind::kNone;
    TagOptions tag_options{
        {marks.begin(), marks.end()}, reasons, words == nullptr ? "" : format_of(*words)};
    grammar::Compiler compiler(tokenizer, static_cast<int64_t>(vocabulary.tokens.size()));
    grammar =
        compiler.compile({grammar::Form::kStructuralTag,
                          structural_tag_of(format, has_tools ? tag_tools() : std::vector<Tool>(),
                                            choice, tag_options)});
  }

  // Up to which byte the grammar takes the text, in which marks are tokens; npos where it takes all
  // and an end.
  size_t takes(const std::string& text) const {
    grammar::Matcher matcher(grammar);
    for (size_t at = 0; at < text.size();) {
      int64_t token = static_cast<unsigned char>(text[at]);
      size_t size = 1;
      for (const auto& [mark, id] : marks) {
        if (text.compare(at, mark.size(), mark) != 0 || mark.size() < size) continue;
        token = id;
        size = mark.size();
      }
      if (!matcher.accept(token)) return at;
      at += size;
    }
    return matcher.accept(256) ? std::string::npos : text.size();
  }

  AnswerOptions options;
  std::map<std::string, int64_t> marks = {};
  std::shared_ptr<const grammar::Grammar> grammar = nullptr;
};

const ToolChoice kAny = {ToolChoice::Kind::kRequired, "", true};

// With and without special tokens: the grammar takes the text, and the parser reads f(a, 1).
void expect_call(ToolFormat format, const std::string& text) {
  for (const bool has_special : {true, false}) {
    const TagGrammar grammar(format, has_special, kAny);
    EXPECT_EQ(grammar.takes(text), std::string::npos) << has_special;
    EXPECT_EQ(answer_of(grammar.options, text), "||f({\"text\": \"a\", \"count\": 1})");
  }
}

class ToolTag : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!grammar::is_available()) GTEST_SKIP() << "this build has no grammars";
  }
};

TEST_F(ToolTag, TakesAFamilysOwnForm) {
  const std::string object = "{\"text\": \"a\", \"count\": 1}";
  expect_call(ToolFormat::kGlm,
              "<tool_call>f\n<arg_key>text</arg_key>\n<arg_value>a</arg_value>\n"
              "<arg_key>count</arg_key>\n<arg_value>1</arg_value>\n</tool_call>");
  expect_call(ToolFormat::kQwenCoder,
              "<tool_call>\n<function=f>\n<parameter=text>\na\n</parameter>\n<parameter=count>\n1\n"
              "</parameter>\n</function>\n</tool_call>");
  expect_call(ToolFormat::kDeepSeek,
              "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n" +
                  object + "\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>");
  expect_call(ToolFormat::kDeepSeekV31,
              "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>" + object +
                  "<｜tool▁call▁end｜><｜tool▁calls▁end｜>");
  expect_call(ToolFormat::kKimi,
              "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0"
              "<|tool_call_argument_begin|>" +
                  object + "<|tool_call_end|><|tool_calls_section_end|>");
  expect_call(ToolFormat::kGemma4, "<|tool_call>call:f" + object + "<tool_call|>");
  expect_call(ToolFormat::kLfm2, "<|tool_call_start|>[{\"name\": \"f\", \"arguments\": " + object +
                                     "}]<|tool_call_end|>");
  expect_call(ToolFormat::kCommand,
              "<|START_ACTION|>[{\"name\": \"f\", \"arguments\": " + object + "}]<|END_ACTION|>");
  expect_call(ToolFormat::kHarmony,
              "<|channel|>commentary to=functions.f <|constrain|>json<|message|>" + object);
}

TEST_F(ToolTag, HoldsCallsToTheirSchemas) {
  const TagGrammar glm(ToolFormat::kGlm, true, kAny);
  const std::string begin = "<tool_call>f\n<arg_key>text</arg_key>\n<arg_value>a</arg_value>\n";
  const std::string count = begin + "<arg_key>count</arg_key>\n<arg_value>";
  EXPECT_EQ(glm.takes(count + "x"), count.size());
  EXPECT_EQ(glm.takes("<tool_call>h"), std::string("<tool_call>").size());
  EXPECT_EQ(glm.takes("I think"), 0U);
  const TagGrammar named(ToolFormat::kHarmony, true, {ToolChoice::Kind::kRequired, "g", true});
  const std::string to = "<|channel|>commentary to=functions.";
  EXPECT_EQ(named.takes(to + "f"), to.size());
  // A mark is no part of a text.
  const std::string text = to + "g <|constrain|>json<|message|>{\"a\": \"";
  EXPECT_EQ(named.takes(text + "<|message|>"), text.size());
}

TEST_F(ToolTag, TakesSeveralCallsWhereTheyMayCome) {
  const std::string call = "<｜tool▁call▁begin｜>g<｜tool▁sep｜>{}<｜tool▁call▁end｜>";
  const std::string begin = "<｜tool▁calls▁begin｜>", end = "<｜tool▁calls▁end｜>";
  const TagGrammar several(ToolFormat::kDeepSeekV31, true, kAny);
  EXPECT_EQ(several.takes(begin + call + call + end), std::string::npos);
  const TagGrammar one(ToolFormat::kDeepSeekV31, true, {ToolChoice::Kind::kRequired, "", false});
  EXPECT_EQ(one.takes(begin + call + call + end), (begin + call).size());
  EXPECT_EQ(one.takes(begin + call + end), std::string::npos);
  // Each has an id of its own.
  const TagGrammar kimi(ToolFormat::kKimi, true, kAny);
  const std::string first = "<|tool_calls_section_begin|><|tool_call_begin|>functions.g:";
  const std::string argument = "<|tool_call_argument_begin|>{}<|tool_call_end|>";
  EXPECT_EQ(kimi.takes(first + "7" + argument + "<|tool_call_begin|>functions.g:12" + argument +
                       "<|tool_calls_section_end|>"),
            std::string::npos);
  EXPECT_EQ(kimi.takes(first + argument), first.size());
}

TEST_F(ToolTag, LetsTheModelThinkFirst) {
  const std::string call = "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>";
  for (const bool has_special : {true, false}) {
    const TagGrammar hermes(ToolFormat::kHermes, false, kAny, true);
    EXPECT_EQ(hermes.takes("Let me see.</think>\n\n" + call), std::string::npos);
    EXPECT_EQ(answer_of(hermes.options, "Let me see.</think>\n\n" + call), "Let me see.||g({})");
    const TagGrammar v31(ToolFormat::kDeepSeekV31, has_special, kAny, true);
    EXPECT_EQ(v31.takes("Hm < 1</think><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>g<｜tool▁sep｜>{}"
                        "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"),
              std::string::npos);
    const TagGrammar harmony(ToolFormat::kHarmony, has_special, kAny);
    EXPECT_EQ(
        harmony.takes("<|channel|>analysis<|message|>Hm < 1<|end|><|start|>assistant<|channel|>"
                      "commentary to=functions.g <|constrain|>json<|message|>{}"),
        std::string::npos);
  }
}

// Words of a form come behind the reasoning, and beside calls where there are tools.
TEST_F(ToolTag, HoldsWordsBehindReasoningAndBesideCalls) {
  const ToolChoice none = {ToolChoice::Kind::kNone, "", true}, any = {};
  const grammar::Source schema = {grammar::Form::kJsonSchema, R"({"type": "integer"})"};
  const grammar::Source ebnf = {grammar::Form::kEbnf, "root ::= \"a\\ta\""};
  const grammar::Source regex = {grammar::Form::kRegex, "a{2}"};
  for (const auto& [words, text] : {std::pair(schema, "12"), {ebnf, "a\ta"}, {regex, "aa"}}) {
    const TagGrammar grammar(ToolFormat::kHermes, false, none, true, &words);
    EXPECT_EQ(grammar.takes(core::join("Hm.</think>\n\n", text)), std::string::npos) << text;
    EXPECT_EQ(grammar.takes("Hm.</think>\n\nx"), 13U);
    EXPECT_EQ(answer_of(grammar.options, core::join("Hm.</think>\n\n", text)),
              core::join("Hm.|", text, "|"));
  }
  const std::string object = "{\"text\": \"a\", \"count\": 1}";
  for (const bool reasons : {true, false}) {
    const std::string head = reasons ? "Hm.</think>" : "";
    const TagGrammar hermes(ToolFormat::kHermes, false, any, reasons, &schema);
    EXPECT_EQ(hermes.takes(head + "12"), std::string::npos);
    EXPECT_EQ(hermes.takes(head + "<tool_call>\n{\"name\": \"f\", \"arguments\": " + object +
                           "}\n</tool_call>"),
              std::string::npos);
    EXPECT_EQ(hermes.takes(head + "I"), head.size());
  }
  for (const bool has_special : {true, false}) {
    const TagGrammar harmony(ToolFormat::kHarmony, has_special, any, false, &schema);
    const std::string thought = "<|channel|>analysis<|message|>Hm<|end|><|start|>assistant";
    const std::string told = "<|channel|>final<|message|>12";
    EXPECT_EQ(harmony.takes(thought + told), std::string::npos);
    EXPECT_EQ(harmony.takes(told), std::string::npos);
    EXPECT_EQ(answer_of(harmony.options, thought + told), "Hm|12|");
    EXPECT_EQ(harmony.takes(thought +
                            "<|channel|>commentary to=functions.f "
                            "<|constrain|>json<|message|>" +
                            object),
              std::string::npos);
    EXPECT_EQ(harmony.takes("12"), 0U);
  }
}

// A model that has run astray can't write spaces for ever.
TEST_F(ToolTag, BoundsWhiteSpaceAsASchemaAloneDoes) {
  const grammar::Source object = {grammar::Form::kJsonObject, ""};
  const auto expect_bound = [](const TagGrammar& grammar, const std::string& begin,
                               const std::string& end) {
    EXPECT_EQ(grammar.takes(begin + std::string(64, ' ') + end), std::string::npos) << begin;
    EXPECT_EQ(grammar.takes(begin + std::string(65, ' ') + end), begin.size() + 64) << begin;
  };
  expect_bound({ToolFormat::kHermes, false, {ToolChoice::Kind::kNone, "", true}, false, &object},
               "{", "}");
  expect_bound({ToolFormat::kHermes, false, kAny},
               "<tool_call>\n{\"name\": \"g\", \"arguments\": {", "}}\n</tool_call>");
  expect_bound({ToolFormat::kDeepSeekV31, true, kAny},
               "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>g<｜tool▁sep｜>{",
               "}<｜tool▁call▁end｜><｜tool▁calls▁end｜>");
}

}  // namespace
}  // namespace weft::serve
