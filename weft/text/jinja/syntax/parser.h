#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "weft/text/jinja/syntax/ast.h"
#include "weft/text/jinja/syntax/lexer.h"

namespace weft::text::jinja {

/// Parses a whole template. Throws FormatError that begins with `where` and the line.
Body parse(const std::string& source, const std::string& where);

/// The tokens of a template and how they are read one by one.
class TokenReader {
 public:
  TokenReader(std::vector<Token> tokens, const std::string& where)
      : tokens_(std::move(tokens)), where_(where) {}

  const Token& peek(size_t ahead = 0) const {
    return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
  }
  Token next();
  bool skip_operator(std::string_view op);
  bool skip_name(std::string_view name);
  void expect_operator(std::string_view op);
  void expect_name(std::string_view name);
  /// A name that is no keyword's start; returns it.
  std::string expect_any_name(std::string_view what);
  void expect(TokenType type, std::string_view what);
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    fail_at(where_, peek().line, parts...);
  }
  [[noreturn]] void fail_expected(std::string_view what) const;

 private:
  std::vector<Token> tokens_;
  const std::string& where_;
  size_t at_ = 0;
};

/// Parses expressions with Jinja's precedences.
class ExpressionParser {
 public:
  explicit ExpressionParser(TokenReader& reader) : reader_(reader) {}

  /// `a if b else c` and everything that binds tighter.
  ExprPtr parse_expression(bool with_condition = true);
  /// One expression, or several with commas as a tuple. Stops before a name in `stops`.
  ExprPtr parse_tuple(bool with_condition = true);
  /// A chain of filters on the text that a block captures: `name(args) | name …`.
  ExprPtr parse_block_filter();
  /// What a `call` block calls.
  ExprPtr parse_call();

  /// Inside an `if` unknown filters and tests fail only when they run, as in Jinja.
  void enter_condition() { ++conditions_; }
  void leave_condition() { --conditions_; }

 private:
  ExprPtr make(Expr::Node node, int line, std::initializer_list<const Expr*> children);
  ExprPtr make(Expr::Node node, int line, int child_depth);

  ExprPtr parse_binary(int level);
  ExprPtr parse_not();
  ExprPtr parse_compare();
  ExprPtr parse_concat();
  ExprPtr parse_unary(bool with_filter);
  ExprPtr parse_primary();
  ExprPtr parse_name_or_constant();
  ExprPtr parse_string();
  ExprPtr parse_parenthesis();
  ExprPtr parse_list();
  ExprPtr parse_dict();
  ExprPtr parse_postfix(ExprPtr value);
  ExprPtr parse_filters(ExprPtr value);
  ExprPtr parse_filter(ExprPtr input);
  ExprPtr parse_test(ExprPtr input);
  ExprPtr parse_attribute(ExprPtr object);
  ExprPtr parse_subscript(ExprPtr object);
  ExprPtr parse_slice(ExprPtr object, ExprPtr begin, int line);
  ExprPtr parse_call_of(ExprPtr callee);
  CallArgs parse_args();
  void parse_arg(CallArgs& args);
  bool test_has_argument() const;
  bool at_tuple_end() const;
  static int depth_of(const CallArgs& args);

  TokenReader& reader_;
  int nesting_ = 0;
  int conditions_ = 0;
};

}  // namespace weft::text::jinja
