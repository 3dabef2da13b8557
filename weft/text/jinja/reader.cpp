#include "weft/text/jinja/syntax/parser.h"

namespace weft::text::jinja {
namespace {

std::string describe(const Token& token) {
  switch (token.type) {
    case TokenType::kEnd:
      return "the end of the template";
    case TokenType::kData:
      return "text";
    case TokenType::kString:
      return "a string";
    default:
      return core::join("'", token.text, "'");
  }
}

}  // namespace

Token TokenReader::next() {
  const Token& token = peek();
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool TokenReader::skip_operator(std::string_view op) {
  if (!peek().is_operator(op)) return false;
  next();
  return true;
}

bool TokenReader::skip_name(std::string_view name) {
  if (!peek().is_name(name)) return false;
  next();
  return true;
}

void TokenReader::expect_operator(std::string_view op) {
  if (!skip_operator(op)) fail_expected(core::join("'", op, "'"));
}

void TokenReader::expect_name(std::string_view name) {
  if (!skip_name(name)) fail_expected(core::join("'", name, "'"));
}

std::string TokenReader::expect_any_name(std::string_view what) {
  if (peek().type != TokenType::kName) fail_expected(what);
  return next().text;
}

void TokenReader::expect(TokenType type, std::string_view what) {
  if (peek().type != type) fail_expected(what);
  next();
}

void TokenReader::fail_expected(std::string_view what) const {
  fail("expected ", what, ", got ", describe(peek()));
}

}  // namespace weft::text::jinja
