#pragma once

#include <fstream>
#include <string>

#include "tests/text/byte_vocabulary.h"
#include "weft/text/tokenizer_json/write_tokenizer_json.h"

namespace weft::testing {

/// Adds a tokenizer whose tokens are the 256 bytes, in their order, to a model's folder.
inline void add_byte_tokenizer(const std::string& folder) {
  const text::Vocabulary vocabulary = byte_vocabulary();
  std::ofstream(folder + "/tokenizer.json") << text::to_tokenizer_json(vocabulary, "test");
  std::ofstream(folder + "/tokenizer_config.json")
      << text::to_tokenizer_config(vocabulary, "{{ messages[0].content }}");
}

}  // namespace weft::testing
