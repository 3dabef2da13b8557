#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include "tests/grammar/grammar_fixture.h"

namespace weft::grammar {
namespace {

using nlohmann::json;
using testing::Fixture;

TEST(Grammar, AllowsWhatTheTextMayGoOnWithAndItsEnd) {
  Fixture fixture;
  Matcher matcher(fixture.compile(Form::kRegex, "(ab|ac)d?"));
  const int64_t end = fixture.tokenizer.vocabulary().eos;
  EXPECT_EQ(fixture.allowed(matcher), std::vector<int64_t>{'a'});
  EXPECT_FALSE(matcher.accept('b'));
  EXPECT_TRUE(matcher.accept('a'));
  EXPECT_EQ(fixture.allowed(matcher), (std::vector<int64_t>{'b', 'c'}));
  EXPECT_TRUE(matcher.accept('c'));
  EXPECT_EQ(fixture.allowed(matcher), (std::vector<int64_t>{'d', end}));
  EXPECT_TRUE(matcher.accept(end));
}

TEST(Grammar, FollowsGbnfAndAnyJsonObject) {
  Fixture fixture;
  const std::string ebnf =
      "root ::= \"[\" item (\",\" item)* \"]\"\nitem ::= [1-9]{1,2} # number\n";
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const json list = json::parse(fixture.draw(Form::kEbnf, ebnf, seed, 9), nullptr, false);
    EXPECT_TRUE(list.is_array() && !list.empty()) << seed;
    const std::string text = fixture.draw(Form::kJsonObject, "", seed, 30);
    // JSON's numbers may be larger than a double, and the library's may not.
    const std::string small =
        std::regex_replace(text, std::regex("([0-9])[eE][+-]?[0-9]{3,}"), "$1e1");
    EXPECT_TRUE(json::parse(small, nullptr, false).is_object()) << text;
  }
}

TEST(Grammar, KeepsToASchemaInTheOrderOfItsMembers) {
  Fixture fixture;
  const std::string schema = R"({"type": "object", "properties": {
      "z": {"type": "integer", "minimum": -3, "maximum": 120},
      "a": {"type": "array", "items": {"enum": ["x", 2, null]}, "minItems": 1, "maxItems": 3},
      "s": {"type": "string", "minLength": 2, "maxLength": 4},
      "d": {"$ref": "#/$defs/tree"}}, "required": ["z", "a", "d"],
    "$defs": {"tree": {"type": "object", "properties": {
      "left": {"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "null"}]}}, "required": ["left"]}}})";
  for (uint64_t seed = 0; seed < 30; ++seed) {
    const std::string text = fixture.draw(Form::kJsonSchema, schema, seed, 0);
    const json value = json::parse(text, nullptr, false);
    ASSERT_TRUE(value.is_object()) << text;
    EXPECT_LT(text.find("\"z\""), text.find("\"a\"")) << text;
    EXPECT_TRUE(value.at("z").is_number_integer() && value.at("z") >= -3 && value.at("z") <= 120);
    EXPECT_TRUE(value.at("a").size() >= 1 && value.at("a").size() <= 3) << text;
    EXPECT_TRUE(value.at("d").at("left").is_null() || value.at("d").at("left").is_object());
  }
}

TEST(Grammar, RefusesWhatIsWrong) {
  Fixture fixture;
  EXPECT_TRUE(fixture.refusal(Form::kRegex, "(a").starts_with("ConfigError: grammar: "));
  EXPECT_TRUE(
      fixture.refusal(Form::kEbnf, "root ::= missing").starts_with("ConfigError: grammar: "));
  EXPECT_TRUE(
      fixture.refusal(Form::kEbnf, "first ::= \"a\"").starts_with("ConfigError: grammar: "));
  EXPECT_TRUE(fixture.refusal(Form::kJsonSchema, "{").starts_with("ConfigError: schema: "));
  EXPECT_EQ(fixture.refusal(Form::kEbnf, "root ::= a\na ::= b\nb ::= a"),
            "ConfigError: grammar: no text begins it, expected one that can be written; look for "
            "rules that refer to themselves alone");
  EXPECT_EQ(fixture.refusal(Form::kRegex, std::string(70'000, 'a')),
            "ConfigError: grammar: 70000 bytes, expected at most 65536");
  EXPECT_TRUE(fixture.refusal(Form::kJsonSchema, R"({"$ref": "#/$defs/none"})")
                  .starts_with("ConfigError: schema: $ref "));
}

TEST(Grammar, RefusesOfSchemasWhatWouldBeLeftOut) {
  Fixture fixture;
  const auto refusal = [&](const std::string& schema) {
    return fixture.refusal(Form::kJsonSchema, schema);
  };
  const std::string begin = "ConfigError: schema";
  EXPECT_EQ(refusal(R"({"not": {"type": "null"}})"),
            begin + ": the keyword 'not' is not supported");
  EXPECT_EQ(refusal(R"({"type": "array", "items": {"type": "null"}, "uniqueItems": true})"),
            begin + ": the keyword 'uniqueItems' is not supported");
  EXPECT_EQ(refusal(R"({"type": "object", "properties": {"a": {"minLength": 2}}})"),
            begin + "/properties/a: minLength without a type; say its type");
  EXPECT_EQ(refusal(R"({"enum": ["a"], "pattern": "b"})"),
            begin + ": pattern beside enum, expected one of them; both together are not supported");
  EXPECT_EQ(refusal(R"({"enum": ["a", 1], "type": "string"})"),
            begin + ": enum has 1, which is not of its type; leave it out");
  EXPECT_EQ(refusal(R"({"allOf": [{"type": "null"}, {"type": "null"}]})"),
            begin + ": allOf, expected a list of one schema; more of them are not supported");
  EXPECT_EQ(refusal(R"({"type": "number", "multipleOf": 2})"),
            begin + ": multipleOf of numbers is not supported, expected the type integer");
  EXPECT_EQ(refusal(R"({"type": "text"})"),
            begin +
                ": type 'text', expected object, array, string, number, integer, boolean or "
                "null");
  EXPECT_EQ(refusal("[1]"), begin + ", expected an object, true or false");
  EXPECT_EQ(refusal(R"({"type": ["null", "boolean"], "maximum": 9})"), "no error");
  // What xgrammar warns of is refused, too.
  EXPECT_NE(refusal(R"({"type": "string", "pattern": "a+", "minLength": 2})"), "no error");
  std::string deep = R"({"type": "null"})";
  for (int i = 0; i < 60; ++i) deep = R"({"type": "array", "items": )" + deep + "}";
  EXPECT_TRUE(refusal(deep).starts_with("ConfigError: schema")) << refusal(deep);
}

// Grammars that call themselves, and those that are large by few words.
TEST(Grammar, StaysBoundedWhateverIsAsked) {
  Fixture fixture;
  const std::vector<Source> hostile = {
      {Form::kEbnf, "root ::= root"},
      {Form::kEbnf, "root ::= \"a\" root | root \"b\" | \"c\""},
      {Form::kEbnf, "root ::= (\"a\"*)*"},
      {Form::kEbnf, "root ::= \"\""},
      {Form::kRegex, "((a{1,100}){1,100}){1,100}"},
      {Form::kRegex, "(a|aa)*(a|aa)*(a|aa)*b"},
      {Form::kJsonSchema, R"({"$ref": "#"})"},
      {Form::kJsonSchema, R"({"type": "array", "items": {"$ref": "#"}})"},
      {Form::kJsonSchema, R"({"type": "string", "maxLength": 2000000000})"},
      {Form::kJsonSchema, R"({"type": "array", "items": {}, "minItems": 1000000})"},
      {Form::kEbnf, std::string(30'000, '(')},
      {Form::kRegex, std::string(30'000, '(')},
  };
  for (const Source& source : hostile) {
    try {
      Matcher matcher(fixture.compiler.compile(source));
      for (int i = 0; i < 20; ++i) {
        const auto next = fixture.allowed(matcher);
        if (next.empty() || !matcher.accept(next.front())) break;
        if (next.front() == fixture.tokenizer.vocabulary().eos) break;
      }
    } catch (const core::ConfigError& error) {
      EXPECT_TRUE(std::string(error.what()).starts_with("grammar: ") ||
                  std::string(error.what()).starts_with("schema"));
    }
  }
}

}  // namespace
}  // namespace weft::grammar
