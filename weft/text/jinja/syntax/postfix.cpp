#include <algorithm>

#include "weft/text/jinja/syntax/parser.h"

namespace weft::text::jinja {
int ExpressionParser::depth_of(const CallArgs& args) {
  int deepest = 0;
  for (const ExprPtr& arg : args.positional) deepest = std::max(deepest, depth(arg));
  for (const auto& [name, arg] : args.named) deepest = std::max(deepest, depth(arg));
  return std::max({deepest, depth(args.more_positional), depth(args.more_named)});
}

ExprPtr ExpressionParser::parse_postfix(ExprPtr value) {
  for (;;) {
    if (reader_.peek().is_operator(".")) {
      value = parse_attribute(std::move(value));
    } else if (reader_.peek().is_operator("[")) {
      value = parse_subscript(std::move(value));
    } else if (reader_.peek().is_operator("(")) {
      value = parse_call_of(std::move(value));
    } else {
      return value;
    }
  }
}

ExprPtr ExpressionParser::parse_filters(ExprPtr value) {
  for (;;) {
    if (reader_.skip_operator("|")) {
      value = parse_filter(std::move(value));
    } else if (reader_.skip_name("is")) {
      value = parse_test(std::move(value));
    } else if (reader_.peek().is_operator("(")) {
      value = parse_call_of(std::move(value));
    } else {
      return value;
    }
  }
}

ExprPtr ExpressionParser::parse_attribute(ExprPtr object) {
  const int line = reader_.next().line;
  const int inner = depth(object);
  if (reader_.peek().type == TokenType::kInteger) {
    ExprPtr key = make(LiteralExpr{Value::integer(reader_.next().integer)}, line, 0);
    return make(ItemExpr{std::move(object), std::move(key)}, line, inner);
  }
  std::string name = reader_.expect_any_name("a name after '.'");
  return make(AttributeExpr{std::move(object), std::move(name)}, line, inner);
}

ExprPtr ExpressionParser::parse_subscript(ExprPtr object) {
  const int line = reader_.next().line;
  ExprPtr key = reader_.peek().is_operator(":") ? nullptr : parse_expression();
  if (reader_.peek().is_operator(":")) return parse_slice(std::move(object), std::move(key), line);
  reader_.expect_operator("]");
  const int deepest = std::max(depth(object), depth(key));
  return make(ItemExpr{std::move(object), std::move(key)}, line, deepest);
}

ExprPtr ExpressionParser::parse_slice(ExprPtr object, ExprPtr begin, int line) {
  const auto bound = [&]() -> ExprPtr {
    const Token& token = reader_.peek();
    return token.is_operator(":") || token.is_operator("]") ? nullptr : parse_expression();
  };
  reader_.expect_operator(":");
  ExprPtr end = bound();
  ExprPtr step = reader_.skip_operator(":") ? bound() : nullptr;
  reader_.expect_operator("]");
  const int deepest = std::max({depth(object), depth(begin), depth(end), depth(step)});
  return make(SliceExpr{std::move(object), std::move(begin), std::move(end), std::move(step)}, line,
              deepest);
}

// `**entries` comes last, and after `*items` only named arguments may follow.
void ExpressionParser::parse_arg(CallArgs& args) {
  if (args.more_named != nullptr) reader_.fail("an argument stands after '**'");
  if (reader_.skip_operator("**")) {
    args.more_named = parse_expression();
  } else if (reader_.peek().type == TokenType::kName && reader_.peek(1).is_operator("=")) {
    std::string name = reader_.next().text;
    reader_.next();
    args.named.emplace_back(std::move(name), parse_expression());
  } else if (args.more_positional != nullptr) {
    reader_.fail("a positional argument stands after '*'");
  } else if (reader_.skip_operator("*")) {
    args.more_positional = parse_expression();
  } else {
    if (!args.named.empty()) reader_.fail("a positional argument stands after a named one");
    args.positional.push_back(parse_expression());
  }
}

CallArgs ExpressionParser::parse_args() {
  reader_.expect_operator("(");
  CallArgs args;
  bool first = true;
  while (!reader_.skip_operator(")")) {
    if (!first) reader_.expect_operator(",");
    first = false;
    if (reader_.skip_operator(")")) break;
    parse_arg(args);
  }
  return args;
}

ExprPtr ExpressionParser::parse_call_of(ExprPtr callee) {
  const int line = reader_.peek().line;
  CallArgs args = parse_args();
  const int deepest = std::max(depth(callee), depth_of(args));
  return make(CallExpr{std::move(callee), std::move(args)}, line, deepest);
}

ExprPtr ExpressionParser::parse_call() {
  ExprPtr call = parse_unary(true);
  if (!std::holds_alternative<CallExpr>(call->node)) reader_.fail("expected a call");
  return call;
}

ExprPtr ExpressionParser::parse_filter(ExprPtr input) {
  const int line = reader_.peek().line;
  std::string name = reader_.expect_any_name("the name of a filter");
  while (reader_.skip_operator(".")) name += core::join('.', reader_.expect_any_name("a name"));
  const Filter filter = find_filter(name);
  if (filter == nullptr && conditions_ == 0) {
    reader_.fail("no filter is named '", name, "'; use one that Jinja has");
  }
  CallArgs args = reader_.peek().is_operator("(") ? parse_args() : CallArgs{};
  const int deepest = std::max(depth(input), depth_of(args));
  return make(FilterExpr{std::move(input), std::move(name), filter, std::move(args)}, line,
              deepest);
}

ExprPtr ExpressionParser::parse_block_filter() {
  ExprPtr value = parse_filter(nullptr);
  while (reader_.skip_operator("|")) value = parse_filter(std::move(value));
  return value;
}

bool ExpressionParser::test_has_argument() const {
  const Token& token = reader_.peek();
  switch (token.type) {
    case TokenType::kString:
    case TokenType::kInteger:
    case TokenType::kFloat:
      return true;
    case TokenType::kName:
      return !token.is_name("else") && !token.is_name("or") && !token.is_name("and") &&
             !token.is_name("is") && !token.is_name("if") && !token.is_name("in") &&
             !token.is_name("not");
    default:
      return token.is_operator("[") || token.is_operator("{");
  }
}

ExprPtr ExpressionParser::parse_test(ExprPtr input) {
  const int line = reader_.peek().line;
  const bool negated = reader_.skip_name("not");
  std::string name = reader_.expect_any_name("the name of a test");
  const Test test = find_test(name);
  if (test == nullptr && conditions_ == 0) {
    reader_.fail("no test is named '", name, "'; use one that Jinja has");
  }
  CallArgs args;
  if (reader_.peek().is_operator("(")) {
    args = parse_args();
  } else if (test_has_argument()) {
    args.positional.push_back(parse_postfix(parse_primary()));
  }
  const int deepest = std::max(depth(input), depth_of(args));
  return make(TestExpr{std::move(input), std::move(name), test, std::move(args), negated}, line,
              deepest);
}

}  // namespace weft::text::jinja
