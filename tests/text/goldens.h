#pragma once

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "weft/core/json.h"
#include "weft/text/tokenizer/tokenizer.h"

namespace weft::text {

/// The folder of the goldens that tools/make_text_goldens.py wrote.
inline std::string golden_folder() {
  const char* other = std::getenv("WEFT_TEXT_GOLDENS");
  return other != nullptr ? other : WEFT_SOURCE_DIR "/tests/text/data";
}

/// A JSON file of that folder.
inline core::Json read_golden(const std::string& name) {
  const std::string path = golden_folder() + "/" + name;
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return core::parse_json(text, path, {.max_bytes = 1'000'000'000});
}

/// The golden vocabulary with one of the pre-tokenizers.
inline Vocabulary golden_vocabulary(const std::string& pre_tokenizer) {
  // The numbers are those of a GGUF's tokenizer.ggml.token_type.
  constexpr TokenKind kKinds[] = {TokenKind::kNormal,  TokenKind::kNormal,      TokenKind::kUnknown,
                                  TokenKind::kControl, TokenKind::kUserDefined, TokenKind::kUnused,
                                  TokenKind::kByte};
  static const core::Json file = read_golden("vocabulary.json");
  Vocabulary vocabulary;
  vocabulary.pre_tokenizer = pre_tokenizer;
  vocabulary.tokens = file.at("tokens").get<std::vector<std::string>>();
  vocabulary.merges = file.at("merges").get<std::vector<std::string>>();
  for (const auto& kind : file.at("kinds")) {
    vocabulary.kinds.push_back(kKinds[kind.get<size_t>()]);
  }
  return vocabulary;
}

/// A tokenizer of that vocabulary.
inline Tokenizer golden_tokenizer(const std::string& pre_tokenizer) {
  return Tokenizer::make(golden_vocabulary(pre_tokenizer), "golden");
}

/// The bytes that hexadecimal digits spell.
inline std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

/// The message of the error of type E that `call` throws; empty if it throws none.
template <class E, class Call>
std::string message_of(Call call) {
  try {
    call();
  } catch (const E& error) {
    return error.what();
  }
  return {};
}

}  // namespace weft::text
