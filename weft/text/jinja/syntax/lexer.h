#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/text/jinja/value.h"

namespace weft::text::jinja {

/// Kinds of tokens.
enum class TokenType {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,
  kEnd
};

/// A token of the template's text and its line.
struct Token {
  TokenType type;
  /// Data, a name, an operator, or what a string literal stands for.
  std::string text;
  int line;
  int64_t integer = 0;
  double number = 0;

  bool is_operator(std::string_view op) const { return type == TokenType::kOperator && text == op; }
  bool is_name(std::string_view name) const { return type == TokenType::kName && text == name; }
};

/// Cuts a template into tokens, with `trim_blocks` and `lstrip_blocks` on, as transformers sets
/// them. Comments vanish and raw blocks become data. The last token is kEnd.
/// Throws FormatError that begins with `where` and the line.
std::vector<Token> lex(const std::string& source, const std::string& where);

/// Throws FormatError "where: line N: parts".
template <class... Parts>
[[noreturn]] void fail_at(const std::string& where, int line, const Parts&... parts) {
  core::fail<core::FormatError>(where, ": line ", line, ": ", parts...);
}

}  // namespace weft::text::jinja
