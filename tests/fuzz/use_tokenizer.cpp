#include "tests/fuzz/use_tokenizer.h"

#include "tests/fuzz/fuzz.h"
#include "weft/text/chat_template.h"

namespace weft::testing {
namespace {

using text::TokenId;

// What comes out is in the vocabulary, and at once or in a stream decodes alike.
void check_ids(const text::Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  for (const TokenId id : ids) {
    expect(id >= 0 && static_cast<size_t>(id) < tokenizer.vocab_size(),
           "ids are in the vocabulary");
  }
  text::Utf8Stream at_once;
  const std::string whole = at_once.push(tokenizer.decode(ids)) + at_once.finish();
  text::TokenStream stream(tokenizer);
  std::string parts;
  for (const TokenId id : ids) parts += stream.push(id);
  expect(parts + stream.finish() == whole, "ids decode alike at once and one by one");
}

void use_text(const text::Tokenizer& tokenizer, std::string_view typed) {
  check_ids(tokenizer, tokenizer.encode(typed));
  check_ids(tokenizer, tokenizer.encode_with_special(typed));
  const size_t half = typed.size() / 2;
  check_ids(tokenizer, tokenizer.encode_chat({{std::string(typed.substr(0, half)), true},
                                              {std::string(typed.substr(half)), false},
                                              {"\n", true}}));
}

}  // namespace

void use_tokenizer(const text::Tokenizer& tokenizer, std::string_view input) {
  constexpr size_t kMaxText = 600;
  use_text(tokenizer, "It's  2024,\n\n na\xC3\xAFve<|im_end|> \xE6\x97\xA5\xE6\x9C\xAC <s>ab\xFF");
  use_text(tokenizer, input.substr(0, kMaxText));
}

}  // namespace weft::testing
