#pragma once

#include <cstdint>

#include "weft/text/bpe/byte_alphabet.h"
#include "weft/text/tokenizer/tokenizer.h"
#include "weft/text/unicode/utf8.h"

namespace weft::testing {

/// A vocabulary whose tokens are the 256 bytes, in their order. Token 0 ends texts.
inline text::Vocabulary byte_vocabulary() {
  text::Vocabulary vocabulary;
  vocabulary.pre_tokenizer = "gpt-2";
  for (int byte = 0; byte < 256; ++byte) {
    text::append_utf8(vocabulary.tokens.emplace_back(),
                      text::byte_to_letter(static_cast<uint8_t>(byte)));
  }
  vocabulary.kinds.assign(256, text::TokenKind::kNormal);
  vocabulary.eos = 0;
  return vocabulary;
}

}  // namespace weft::testing
