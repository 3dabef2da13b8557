#pragma once

#include <string>

#include "tests/text/goldens.h"
#include "weft/core/error.h"
#include "weft/text/tokenizer_json/tokenizer_json.h"

namespace weft::text {

/// The texts and the names of the shapes of tools/make_tokenizer_json_goldens.py.
inline const core::Json& json_inputs() {
  static const core::Json file = read_golden("tokenizer_json/inputs.json");
  return file;
}

/// The text of one of its tokenizer.json files.
inline std::string shape_text(const std::string& shape) {
  std::ifstream file(golden_folder() + "/tokenizer_json/" + shape + ".json", std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline Tokenizer tokenizer_of(const std::string& text) {
  return Tokenizer::make(parse_tokenizer_json(text, "t.json"));
}

inline Tokenizer shape_tokenizer(const std::string& shape) {
  return tokenizer_of(shape_text(shape));
}

}  // namespace weft::text
