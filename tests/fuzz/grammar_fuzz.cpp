// A grammar: its first letter says how the rest of the input is written, s for a JSON schema, r for
// a regular expression, g for GBNF, t for a schema between marks as calls of tools have it. What
// compiles is followed by draws that the input decides.
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz.h"
#include "weft/core/error.h"
#include "weft/core/json.h"
#include "weft/grammar/grammar.h"
#include "weft/text/bpe/byte_alphabet.h"
#include "weft/text/unicode/utf8.h"

namespace {

using namespace weft;

constexpr size_t kMostTokens = 200;

// A token for each byte, some that cross the borders of JSON's own, and an end.
text::Tokenizer small_tokenizer() {
  text::Vocabulary vocabulary;
  vocabulary.pre_tokenizer = "gpt-2";
  for (int byte = 0; byte < 256; ++byte) {
    std::string letter;
    text::append_utf8(letter, text::byte_to_letter(static_cast<uint8_t>(byte)));
    vocabulary.tokens.push_back(letter);
  }
  for (const char* longer : {"{\"", "\":", "\",", "}}", "true", "\\u00", "<end>"}) {
    vocabulary.tokens.emplace_back(longer);
  }
  vocabulary.kinds.assign(vocabulary.tokens.size(), text::TokenKind::kNormal);
  vocabulary.kinds.back() = text::TokenKind::kControl;
  vocabulary.eos = static_cast<text::TokenId>(vocabulary.tokens.size()) - 1;
  return text::Tokenizer::make(vocabulary, "fuzz");
}

struct Fixture {
  text::Tokenizer tokenizer = small_tokenizer();
  // A model scores more tokens than its tokenizer has.
  int64_t vocab_size = static_cast<int64_t>(tokenizer.vocab_size()) + 3;
};

std::vector<int64_t> tokens_of(std::span<const int32_t> mask, int64_t vocab_size) {
  std::vector<int64_t> tokens;
  for (int64_t id = 0; id < vocab_size; ++id) {
    const auto word = static_cast<uint32_t>(mask[static_cast<size_t>(id / 32)]);
    if ((word >> (id % 32) & 1) != 0) tokens.push_back(id);
  }
  return tokens;
}

// Draws a text by the input's own bytes. Empty if it did not end.
std::string draw(const Fixture& fixture, grammar::Matcher& matcher, const std::string& bytes) {
  uint64_t state = bytes.size();
  std::string drawn;
  for (size_t step = 0; step < kMostTokens; ++step) {
    const auto next = tokens_of(matcher.allowed(), fixture.vocab_size);
    if (next.empty()) return "";
    for (const int64_t token : {next.front(), next.back()}) {
      testing::expect(token < static_cast<int64_t>(fixture.tokenizer.vocab_size()),
                      "only tokens that there are may come");
    }
    state = state * 6364136223846793005ULL + static_cast<uint8_t>(bytes[step % bytes.size()]) + 1;
    const int64_t token = next[(state >> 33) % next.size()];
    testing::expect(matcher.accept(token), "what may come is accepted");
    if (fixture.tokenizer.is_end(static_cast<text::TokenId>(token))) return drawn;
    drawn += fixture.tokenizer.bytes(static_cast<text::TokenId>(token));
  }
  return "";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Fixture fixture;
  if (size < 2) return 0;
  const std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  grammar::Source source{grammar::Form::kJsonSchema, bytes};
  if (*data == 'r') source.form = grammar::Form::kRegex;
  if (*data == 'g') source.form = grammar::Form::kEbnf;
  testing::run_input([&] {
    if (*data == 't') {
      core::parse_json(bytes, "schema");
      source = {
          grammar::Form::kStructuralTag,
          R"({"type": "structural_tag", "format": {"type": "triggered_tags", "triggers": ["<c>"], "tags": [)"
          R"({"begin": "<c>", "content": {"type": "json_schema", "json_schema": )" +
              bytes + R"(}, "end": "</c>"}]}})"};
    }
    grammar::Compiler compiler(fixture.tokenizer, fixture.vocab_size);
    grammar::Matcher matcher(compiler.compile(source));
    const std::string drawn = draw(fixture, matcher, bytes);
    if (source.form != grammar::Form::kJsonSchema || drawn.empty()) return;
    try {
      core::parse_json(text::to_valid_utf8(drawn), "answer");
    } catch (const core::Error& error) {
      testing::expect(false, core::join("an answer is JSON, got ", drawn, ": ", error.what()));
    }
  });
  return 0;
}
