// What xgrammar would read wrongly or leave out, by the exact texts of refusals.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/grammar/grammar_fixture.h"
#include "tests/grammar/random_schema.h"

namespace weft::grammar {
namespace {

using testing::Fixture;

using Cases = std::vector<std::pair<std::string, std::string>>;

void expect_refusals(Form form, const Cases& cases) {
  Fixture fixture;
  for (const auto& [source, message] : cases) {
    const std::string expected = message.empty() ? "no error" : "ConfigError: " + message;
    EXPECT_EQ(fixture.refusal(form, source), expected) << source.substr(0, 200);
  }
}

TEST(GrammarRefusals, OfRegularExpressions) {
  const std::string control = "grammar: \\c is not supported; write the character as \\xHH";
  expect_refusals(
      Form::kRegex,
      {{"a\\cJ", control},
       {"[^a\\cJ]", control},
       {"[a\\\\cJ]\\\\c", ""},
       {"(?<\xF0\x9F\x98\x80>a)", "grammar: the name of a group, expected ASCII letters"},
       {"(?<name>a)", ""},
       {"\\x41[\\x42]\\u0041A\\U00000041", ""},
       {"\\x4CCCCCCCCCC1",
        "grammar: '\\x4CCCCCCCCC', expected two digits; write a character with "
        "others behind it as \\uHHHH"},
       {"[\\x4]",
        "grammar: '\\x4', expected two digits; write a character with others behind it as "
        "\\uHHHH"},
       {"\\UFFFFFFFF", "grammar: '\\UFFFFFFFF', expected at most \\U0010FFFF"},
       {"a{4294967297}", "grammar: the count 4294967297, expected at most 1000000"},
       {"a{2,99999999999999999999}",
        "grammar: the count 99999999999999999999, expected at most 1000000"},
       {std::string(101, '(') + "a" + std::string(101, ')'),
        "grammar: groups nested deeper than 100"}});
}

TEST(GrammarRefusals, OfGbnf) {
  using namespace std::string_literals;
  expect_refusals(
      Form::kEbnf,
      {{"root ::= \"a\"\0 b"s, "grammar: a NUL character, expected text; write it as \\x00"},
       {"root ::= Token(7)",
        "grammar: the rule's name 'Token', expected one that is no function of xgrammar's"},
       {"root ::= \"a\" # Token(7)\rb ::= Regex(\"a\")",
        "grammar: the rule's name 'Regex', expected one that is no function of xgrammar's"},
       {"root ::= \"Token(\" [Token(]", ""},
       {"root ::= a\na[max_tokens=3] ::= [a-z]*",
        "grammar: attributes of the rule 'a' are not supported; leave them out"},
       {"root ::= a[lazy] # ::=\na ::= [a-z]", ""},
       {"root ::= a \"b\"\na ::= \"a\" (=\"b\")", "grammar: a lookahead (= is not supported"},
       {"root ::= \"\\x41\" [\\x42-\\x43]", ""},
       {"root ::= \"\\x41B\"",
        "grammar: '\\x41B', expected two digits; write a character with others "
        "behind it as \\uHHHH"},
       {"root ::= [\\U00110000]", "grammar: '\\U00110000', expected at most \\U0010FFFF"},
       {"root ::= \"a\"{4294967297}", "grammar: the count 4294967297, expected at most 1000000"},
       {"root ::= " + std::string(101, '(') + "\"a\"" + std::string(101, ')'),
        "grammar: groups nested deeper than 100"}});
}

TEST(GrammarRefusals, OfCountsNumbersAndReferencesInSchemas) {
  const std::string path = ", expected # or the path of a schema in this one, like #/$defs/name";
  expect_refusals(
      Form::kJsonSchema,
      {{R"({"type": "string", "minLength": -1})",
        "schema: minLength -1, expected a whole number from 0 to 2147483647"},
       {R"({"type": "object", "minProperties": 4294967297})",
        "schema: minProperties 4294967297, expected a whole number from 0 to 2147483647"},
       {R"({"type": "array", "items": {"type": "null"}, "maxItems": 2.5})",
        "schema: maxItems 2.5, expected a whole number from 0 to 2147483647"},
       {R"({"const": {"a": [18446744073709551615]}})",
        "schema: const: the number 18446744073709551615, expected one of 64 bits"},
       {R"({"enum": [9007199254740993, -0.5]})", ""},
       {R"({"type": []})", "schema: type, expected a name or a list of names"},
       {R"({"$ref": "#/default", "default": {"not": {}}})", "schema: $ref '#/default'" + path},
       {R"({"$ref": "#/$defs", "$defs": {"a": {"type": "null"}}})",
        "schema: $ref '#/$defs'" + path},
       {R"({"$ref": "#/$defs/a~1b", "$defs": {"a~1b": {"type": "null"}}})",
        "schema: $ref '#/$defs/a~1b'" + path},
       {R"({"$ref": "other.json"})", "schema: $ref 'other.json'" + path},
       {R"({"$ref": "#/$defs/a", "$defs": {"a": {"type": "null"}}})", ""},
       {R"({"type": "object", "properties": {"a": {"$id": "x", "type": "null"}}})",
        "schema/properties/a: $id is not supported inside a schema; leave it out"}});
}

TEST(GrammarRefusals, OfMembersThatCouldBreakTheirSchema) {
  const std::string beside = ", expected one of them; both together are not supported";
  expect_refusals(
      Form::kJsonSchema,
      {{R"({"type": "object", "properties": {"a": {"type": "null"}}, "required": ["b"]})",
        "schema: required 'b', which properties lacks; say its schema there"},
       {R"({"type": "object", "properties": {"a": {"type": "null"}}, "patternProperties": {"^b$": {}}})",
        "schema: patternProperties beside properties" + beside},
       {R"({"type": "object", "properties": {"a": {"type": "null"}}, "propertyNames": {"type": "string"}})",
        "schema: propertyNames beside properties" + beside},
       {R"({"type": "object", "patternProperties": {"^b$": {}}, "additionalProperties": {}})",
        "schema: patternProperties beside additionalProperties" + beside},
       {R"({"type": "object", "patternProperties": {"^b$": {}, "^c$": {}}})",
        "schema: patternProperties, expected one pattern; more are not supported"},
       {R"({"type": "object", "patternProperties": {"^b$": {}}, "additionalProperties": false})",
        ""},
       {R"({"type": "object", "propertyNames": {"type": "string"}, "additionalProperties": false})",
        "schema: propertyNames beside additionalProperties false, expected one"},
       {R"({"type": "object", "propertyNames": {}})",
        "schema: propertyNames, expected a schema of the type string"},
       {R"({"type": "object", "additionalProperties": {}, "minProperties": 2})",
        "schema: minProperties 2 where names are free, expected at most 1, the number of required "
        "ones or 1: one name may come twice"},
       {R"({"type": "object", "additionalProperties": {}, "minProperties": 1})", ""},
       {R"({"type": "object", "properties": {"a": {"type": "null"}}, "additionalProperties": true})",
        "schema: properties beside additionalProperties other than false, expected one; leave the "
        "latter out: there are only the members that are named, then"}});
}

TEST(GrammarRefusals, OfPatternsThatNeedEscapes) {
  const auto refusal = [](const std::string& place, const std::string& pattern) {
    return "schema" + place + " " + pattern +
           " is not supported, expected printable ASCII and texts without quotes and backslashes";
  };
  expect_refusals(
      Form::kJsonSchema,
      {{R"({"type": "string", "pattern": "a\"b"})", refusal("/pattern", "'a\"b'")},
       {R"({"type": "string", "pattern": "\\\\"})", refusal("/pattern", "'\\\\'")},
       {R"({"type": "string", "pattern": ".]"})", refusal("/pattern", "'.]'")},
       {R"({"type": "string", "pattern": "Regex\\(\""})", refusal("/pattern", "'Regex\\(\"'")},
       {R"({"type": "object", "patternProperties": {"é": {}}})",
        refusal("/patternProperties", "'\\xc3\\xa9'")},
       {R"({"type": "string", "pattern": "[^\"]\\S.\\W"})", ""}});
}

TEST(GrammarRefusals, OfSchemasOfCalls) {
  const std::string begin =
      R"({"type": "structural_tag", "format": {"type": "tag", "begin": "<", "end": ">", )";
  expect_refusals(Form::kStructuralTag,
                  {{begin + R"("content": {"type": "json_schema", "json_schema": {"not": {}}}}})",
                    "schema: the keyword 'not' is not supported"},
                   {begin + R"("content": {"type": "json_schema", "json_schema": {}}}})", ""}});
}

std::string one_of(const std::string& branches) {
  return R"({"oneOf": [)" + branches + R"(], "$defs": {"cat": {"type": "object", "properties":
{"kind": {"const": "cat", "type": "string"}}, "required": ["kind"]}, "dog": {"type": "object",
"properties": {"kind": {"enum": ["dog", "cat"]}}, "required": ["kind"]}}})";
}

TEST(GrammarRefusals, OfSchemasThatAreNotPlainlyApart) {
  const auto refusal = [](const std::string& pair) {
    return "schema/oneOf: " + pair +
           " may both hold, expected schemas that are plainly apart: by their type, or by a const "
           "of a member that they require; or anyOf, which takes any";
  };
  const std::string sized = R"({"type": "string", "minLength": 2}, {"type": "integer"})";
  const std::string either = R"({"anyOf": [{"const": 1}, {"type": "array"}]})";
  const std::string closed = R"({"type": "object", "properties": {"b": {"type": "null"}},
    "additionalProperties": false})";
  const std::string other = R"({"type": "object", "properties": {"a": {"type": "null"}})";
  expect_refusals(
      Form::kJsonSchema,
      {{one_of(sized), ""},
       {one_of(sized + ", {\"type\": \"number\"}"), refusal("1 and 2")},
       {one_of(either + R"(, {"enum": [2, "x"]})"), ""},
       {one_of(either + R"(, {"enum": [1.0, "x"]})"), refusal("0 and 1")},
       {one_of(R"({"$ref": "#/$defs/cat"})"), ""},
       {one_of(R"({"$ref": "#/$defs/cat"}, {"type": "null"})"), ""},
       {one_of(R"({"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/dog"})"), refusal("0 and 1")},
       {one_of(R"({"type": "null"}, {"$ref": "#"})"), refusal("0 and 1")},
       {one_of(closed + ", " + other + R"(, "required": ["a"]})"), ""},
       {one_of(closed + ", " + other + "}"), refusal("0 and 1")},
       {one_of(""), "schema/oneOf, expected a list of schemas"}});
}

// What is taken for apart: no value of the one is one of the other.
TEST(Grammar, NoAnswerHoldsTwoBranchesOfAOneOf) {
  Fixture fixture;
  int taken = 0;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const testing::Json a = testing::RandomSchema(2 * seed).whole();
    const testing::Json b = testing::RandomSchema(2 * seed + 1).whole();
    if (a.contains("$defs") || b.contains("$defs")) continue;
    const testing::Json both = {{"oneOf", {a, b}}};
    if (fixture.refusal(Form::kJsonSchema, both.dump()) != "no error") continue;
    ++taken;
    const std::string text = fixture.draw(Form::kJsonSchema, both.dump(), seed, 0);
    const testing::Json value = testing::Json::parse(text, nullptr, false);
    if (value.is_discarded()) continue;
    EXPECT_FALSE(testing::complaint(value, a, a).empty() && testing::complaint(value, b, b).empty())
        << both << "\n"
        << text;
  }
  EXPECT_GT(taken, 10);
}

// As pydantic 2.14 writes Union[Cat, Dog] with a discriminator.
TEST(Grammar, TakesPydanticsUnions) {
  const char* const schema = R"({"$defs": {"Cat": {"properties": {"kind": {"const": "cat",
    "title": "Kind", "type": "string"}, "lives": {"title": "Lives", "type": "integer"}},
    "required": ["kind", "lives"], "title": "Cat", "type": "object"}, "Dog": {"properties": {"kind":
    {"const": "dog", "title": "Kind", "type": "string"}, "name": {"title": "Name", "type":
    "string"}}, "required": ["kind", "name"], "title": "Dog", "type": "object"}}, "properties":
    {"pet": {"discriminator": {"mapping": {"cat": "#/$defs/Cat", "dog": "#/$defs/Dog"},
    "propertyName": "kind"}, "oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}], "title":
    "Pet"}}, "required": ["pet"], "title": "Owner", "type": "object"})";
  Fixture fixture;
  std::set<std::string> kinds;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const std::string text = fixture.draw(Form::kJsonSchema, schema, seed, 0);
    const testing::Json pet = testing::Json::parse(text)["pet"];
    kinds.insert(pet["kind"]);
    EXPECT_TRUE(pet["kind"] == "cat" ? pet["lives"].is_number_integer() : pet["name"].is_string())
        << text;
  }
  EXPECT_EQ(kinds, (std::set<std::string>{"cat", "dog"}));
}

// Drawn without a model: any token that may come, with the same chance.
TEST(Grammar, KeepsToRandomSchemas) {
  Fixture fixture;
  int ended = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const testing::Json schema = testing::RandomSchema(seed).whole();
    const std::string text = fixture.draw(Form::kJsonSchema, schema.dump(), seed, 0);
    if (text.starts_with("no end")) continue;
    ++ended;
    const testing::Json value = testing::Json::parse(text, nullptr, false);
    ASSERT_FALSE(value.is_discarded()) << schema << "\n" << text;
    EXPECT_EQ(testing::complaint(value, schema, schema), "") << schema << "\n" << text;
  }
  EXPECT_GT(ended, 150);
}

}  // namespace
}  // namespace weft::grammar
