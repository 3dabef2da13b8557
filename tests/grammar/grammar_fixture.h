#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/core/error_text.h"
#include "weft/grammar/grammar.h"
#include "weft/text/bpe/byte_alphabet.h"
#include "weft/text/unicode/utf8.h"

namespace weft::testing {

/// A token for each byte, some longer ones that cross the borders of JSON's own, and an end.
inline text::Tokenizer small_tokenizer() {
  text::Vocabulary vocabulary;
  vocabulary.pre_tokenizer = "gpt-2";
  for (int byte = 0; byte < 256; ++byte) {
    std::string letter;
    text::append_utf8(letter, text::byte_to_letter(static_cast<uint8_t>(byte)));
    vocabulary.tokens.push_back(letter);
  }
  for (const char* longer : {"{\"", "\":", "\",", "}}", "true", "<end>"}) {
    vocabulary.tokens.emplace_back(longer);
  }
  vocabulary.kinds.assign(vocabulary.tokens.size(), text::TokenKind::kNormal);
  vocabulary.kinds.back() = text::TokenKind::kControl;
  vocabulary.eos = static_cast<text::TokenId>(vocabulary.tokens.size()) - 1;
  return text::Tokenizer::make(vocabulary, "test");
}

/// Compiles grammars for it and draws texts that they allow.
struct Fixture {
  text::Tokenizer tokenizer = small_tokenizer();
  // A model scores more tokens than its tokenizer has.
  int64_t vocab_size = static_cast<int64_t>(tokenizer.vocab_size()) + 50;
  grammar::Compiler compiler{tokenizer, vocab_size};

  std::shared_ptr<const grammar::Grammar> compile(grammar::Form form, const std::string& text) {
    return compiler.compile({form, text});
  }
  std::vector<int64_t> allowed(grammar::Matcher& matcher) const {
    const auto mask = matcher.allowed();
    std::vector<int64_t> tokens;
    for (int64_t id = 0; id < vocab_size; ++id) {
      if ((static_cast<uint32_t>(mask[static_cast<size_t>(id / 32)]) >> (id % 32) & 1) != 0) {
        tokens.push_back(id);
      }
    }
    return tokens;
  }
  // A text that the grammar allows, drawn at random; ended as soon as it may be after `tokens`.
  // Bytes that are no character become U+FFFD, as in answers.
  std::string draw(grammar::Form form, const std::string& text, uint64_t seed, size_t tokens) {
    grammar::Matcher matcher(compile(form, text));
    std::mt19937_64 random(seed);
    std::string drawn;
    for (size_t step = 0; step < tokens + 2000; ++step) {
      const std::vector<int64_t> next = allowed(matcher);
      if (next.empty()) return "dead end: " + drawn;
      const bool may_end = next.back() == tokenizer.vocabulary().eos;
      if (may_end && (step >= tokens || next.size() == 1)) {
        return text::to_valid_utf8(drawn);
      }
      const int64_t token = next[random() % (next.size() - (may_end ? 1 : 0))];
      EXPECT_TRUE(matcher.accept(token));
      drawn += tokenizer.bytes(static_cast<text::TokenId>(token));
    }
    return "no end: " + drawn;
  }
  std::string refusal(grammar::Form form, const std::string& text) {
    return error_text([&] { compile(form, text); });
  }
};

}  // namespace weft::testing
