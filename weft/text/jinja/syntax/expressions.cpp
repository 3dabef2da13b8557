#include <algorithm>
#include <array>

#include "weft/text/jinja/syntax/parser.h"

namespace weft::text::jinja {
namespace {

// Deeper ones would overflow the stack of whoever parses, walks or destroys them.
constexpr int kMaxExpressionDepth = 150;
constexpr int kMaxNesting = 60;

struct BinaryRule {
  std::string_view token;
  BinaryOp op;
  int level;
};

// From loose to tight; comparisons stand between `not` and `+`, `~` between `+` and `*`.
constexpr int kOr = 0, kAnd = 1, kSum = 2, kProduct = 3, kPower = 4;
constexpr BinaryRule kRules[] = {
    {"or", BinaryOp::kOr, kOr},
    {"and", BinaryOp::kAnd, kAnd},
    {"+", BinaryOp::kAdd, kSum},
    {"-", BinaryOp::kSubtract, kSum},
    {"*", BinaryOp::kMultiply, kProduct},
    {"/", BinaryOp::kDivide, kProduct},
    {"//", BinaryOp::kFloorDivide, kProduct},
    {"%", BinaryOp::kModulo, kProduct},
    {"**", BinaryOp::kPower, kPower},
};

const BinaryRule* find_rule(const Token& token, int level) {
  const TokenType type = level <= kAnd ? TokenType::kName : TokenType::kOperator;
  for (const BinaryRule& rule : kRules) {
    if (rule.level == level && token.type == type && token.text == rule.token) return &rule;
  }
  return nullptr;
}

constexpr std::pair<std::string_view, CompareOp> kCompares[] = {
    {"==", CompareOp::kEqual},     {"!=", CompareOp::kNotEqual}, {"<", CompareOp::kLess},
    {"<=", CompareOp::kLessEqual}, {">", CompareOp::kGreater},   {">=", CompareOp::kGreaterEqual}};

std::optional<CompareOp> read_compare(TokenReader& reader) {
  for (const auto& [token, op] : kCompares) {
    if (reader.skip_operator(token)) return op;
  }
  if (reader.skip_name("in")) return CompareOp::kIn;
  if (reader.peek().is_name("not") && reader.peek(1).is_name("in")) {
    reader.next();
    reader.next();
    return CompareOp::kNotIn;
  }
  return std::nullopt;
}

}  // namespace

ExprPtr ExpressionParser::make(Expr::Node node, int line, int child_depth) {
  if (child_depth >= kMaxExpressionDepth) {
    reader_.fail("expressions nested deeper than ", kMaxExpressionDepth,
                 " levels; simplify the template");
  }
  return std::make_unique<Expr>(Expr{line, child_depth + 1, std::move(node)});
}

ExprPtr ExpressionParser::parse_expression(bool with_condition) {
  if (++nesting_ > kMaxNesting) {
    reader_.fail("expressions nested deeper than ", kMaxNesting, " levels; simplify the template");
  }
  ExprPtr value = parse_binary(kOr);
  while (with_condition && reader_.peek().is_name("if")) {
    const int line = reader_.next().line;
    ExprPtr test = parse_binary(kOr);
    ExprPtr otherwise = reader_.skip_name("else") ? parse_expression() : nullptr;
    const int deepest = std::max({depth(value), depth(test), depth(otherwise)});
    value =
        make(ConditionExpr{std::move(test), std::move(value), std::move(otherwise)}, line, deepest);
  }
  --nesting_;
  return value;
}

ExprPtr ExpressionParser::parse_binary(int level) {
  const auto operand = [&]() -> ExprPtr {
    if (level == kAnd) return parse_not();
    if (level == kSum) return parse_concat();
    if (level == kPower) return parse_unary(true);
    return parse_binary(level + 1);
  };
  ExprPtr left = operand();
  while (const BinaryRule* rule = find_rule(reader_.peek(), level)) {
    const int line = reader_.next().line;
    ExprPtr right = operand();
    const int deepest = std::max(depth(left), depth(right));
    left = make(BinaryExpr{rule->op, std::move(left), std::move(right)}, line, deepest);
  }
  return left;
}

ExprPtr ExpressionParser::parse_not() {
  std::vector<int> lines;
  while (reader_.peek().is_name("not")) lines.push_back(reader_.next().line);
  ExprPtr value = parse_compare();
  for (; !lines.empty(); lines.pop_back()) {
    const int inner = depth(value);
    value = make(UnaryExpr{UnaryOp::kNot, std::move(value)}, lines.back(), inner);
  }
  return value;
}

ExprPtr ExpressionParser::parse_compare() {
  ExprPtr first = parse_binary(kSum);
  const int line = reader_.peek().line;
  int deepest = depth(first);
  std::vector<std::pair<CompareOp, ExprPtr>> rest;
  while (const auto op = read_compare(reader_)) {
    rest.emplace_back(*op, parse_binary(kSum));
    deepest = std::max(deepest, depth(rest.back().second));
  }
  if (rest.empty()) return first;
  return make(CompareExpr{std::move(first), std::move(rest)}, line, deepest);
}

ExprPtr ExpressionParser::parse_concat() {
  const int line = reader_.peek().line;
  std::vector<ExprPtr> parts;
  int deepest = 0;
  do {
    parts.push_back(parse_binary(kProduct));
    deepest = std::max(deepest, depth(parts.back()));
  } while (reader_.skip_operator("~"));
  if (parts.size() == 1) return std::move(parts[0]);
  return make(ConcatExpr{std::move(parts)}, line, deepest);
}

ExprPtr ExpressionParser::parse_unary(bool with_filter) {
  std::vector<Token> signs;
  while (reader_.peek().is_operator("-") || reader_.peek().is_operator("+")) {
    signs.push_back(reader_.next());
  }
  // A sign binds tighter than a filter after its operand.
  ExprPtr value = parse_postfix(parse_primary());
  for (; !signs.empty(); signs.pop_back()) {
    const UnaryOp op = signs.back().text == "-" ? UnaryOp::kMinus : UnaryOp::kPlus;
    const int inner = depth(value);
    value = make(UnaryExpr{op, std::move(value)}, signs.back().line, inner);
    value = parse_postfix(std::move(value));
  }
  return with_filter ? parse_filters(std::move(value)) : std::move(value);
}

ExprPtr ExpressionParser::parse_primary() {
  const Token& token = reader_.peek();
  const int line = token.line;
  switch (token.type) {
    case TokenType::kName:
      return parse_name_or_constant();
    case TokenType::kString:
      return parse_string();
    case TokenType::kInteger:
      return make(LiteralExpr{Value::integer(reader_.next().integer)}, line, 0);
    case TokenType::kFloat:
      return make(LiteralExpr{Value(reader_.next().number)}, line, 0);
    default:
      break;
  }
  if (token.is_operator("(")) return parse_parenthesis();
  if (token.is_operator("[")) return parse_list();
  if (token.is_operator("{")) return parse_dict();
  reader_.fail_expected("an expression");
}

ExprPtr ExpressionParser::parse_name_or_constant() {
  const Token token = reader_.next();
  const std::string& name = token.text;
  if (name == "true" || name == "True") return make(LiteralExpr{Value(true)}, token.line, 0);
  if (name == "false" || name == "False") return make(LiteralExpr{Value(false)}, token.line, 0);
  if (name == "none" || name == "None") return make(LiteralExpr{Value(None{})}, token.line, 0);
  return make(NameExpr{name}, token.line, 0);
}

ExprPtr ExpressionParser::parse_string() {
  const int line = reader_.peek().line;
  std::string text;
  while (reader_.peek().type == TokenType::kString) text += reader_.next().text;
  return make(LiteralExpr{Value::text(text)}, line, 0);
}

bool ExpressionParser::at_tuple_end() const {
  const Token& token = reader_.peek();
  return token.type == TokenType::kVariableEnd || token.type == TokenType::kBlockEnd ||
         token.type == TokenType::kEnd || token.is_operator(")");
}

ExprPtr ExpressionParser::parse_tuple(bool with_condition) {
  const int line = reader_.peek().line;
  ExprPtr first = parse_expression(with_condition);
  if (!reader_.peek().is_operator(",")) return first;
  int deepest = depth(first);
  std::vector<ExprPtr> items;
  items.push_back(std::move(first));
  while (reader_.skip_operator(",") && !at_tuple_end()) {
    items.push_back(parse_expression(with_condition));
    deepest = std::max(deepest, depth(items.back()));
  }
  return make(ListExpr{std::move(items), true}, line, deepest);
}

ExprPtr ExpressionParser::parse_parenthesis() {
  const int line = reader_.next().line;
  if (reader_.skip_operator(")")) return make(ListExpr{{}, true}, line, 0);
  ExprPtr value = parse_tuple();
  reader_.expect_operator(")");
  return value;
}

ExprPtr ExpressionParser::parse_list() {
  const int line = reader_.next().line;
  std::vector<ExprPtr> items;
  int deepest = 0;
  while (!reader_.skip_operator("]")) {
    if (!items.empty()) reader_.expect_operator(",");
    if (reader_.skip_operator("]")) break;
    items.push_back(parse_expression());
    deepest = std::max(deepest, depth(items.back()));
  }
  return make(ListExpr{std::move(items), false}, line, deepest);
}

ExprPtr ExpressionParser::parse_dict() {
  const int line = reader_.next().line;
  std::vector<std::pair<ExprPtr, ExprPtr>> entries;
  int deepest = 0;
  while (!reader_.skip_operator("}")) {
    if (!entries.empty()) reader_.expect_operator(",");
    if (reader_.skip_operator("}")) break;
    ExprPtr key = parse_expression();
    reader_.expect_operator(":");
    entries.emplace_back(std::move(key), parse_expression());
    deepest = std::max({deepest, depth(entries.back().first), depth(entries.back().second)});
  }
  return make(DictExpr{std::move(entries)}, line, deepest);
}

}  // namespace weft::text::jinja
