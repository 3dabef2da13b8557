#pragma once

#include <cstdint>
#include <fstream>
#include <string>

#include "weft/text/bpe/byte_alphabet.h"
#include "weft/text/tokenizer_json/write_tokenizer_json.h"
#include "weft/text/unicode/utf8.h"

namespace weft::testing {

/// Adds a tokenizer whose tokens are the 256 bytes, in their order, to a model's folder.
inline void add_byte_tokenizer(const std::string& folder) {
  text::Vocabulary vocabulary;
  vocabulary.pre_tokenizer = "gpt-2";
  for (int byte = 0; byte < 256; ++byte) {
    text::append_utf8(vocabulary.tokens.emplace_back(),
                      text::byte_to_letter(static_cast<uint8_t>(byte)));
  }
  vocabulary.kinds.assign(256, text::TokenKind::kNormal);
  vocabulary.eos = 0;
  std::ofstream(folder + "/tokenizer.json") << text::to_tokenizer_json(vocabulary, "test");
  std::ofstream(folder + "/tokenizer_config.json")
      << text::to_tokenizer_config(vocabulary, "{{ messages[0].content }}");
}

}  // namespace weft::testing
