#include <algorithm>

#include "weft/text/jinja/syntax/parser.h"

namespace weft::text::jinja {
namespace {

constexpr int kMaxBlocks = 40;

class StatementParser {
 public:
  StatementParser(TokenReader& reader) : reader_(reader), expressions_(reader) {}

  Body parse_template() {
    Body body = parse_body({});
    if (reader_.peek().type != TokenType::kEnd) reader_.fail_expected("the end of the template");
    return body;
  }

 private:
  using Ends = std::initializer_list<std::string_view>;

  // Statements up to a block tag named in `ends`, the name of which is then next.
  Body parse_body(Ends ends) {
    if (++nesting_ > kMaxBlocks) {
      reader_.fail("blocks nested deeper than ", kMaxBlocks, " levels; simplify the template");
    }
    Body body;
    while (reader_.peek().type != TokenType::kEnd) {
      const int line = reader_.peek().line;
      if (reader_.peek().type == TokenType::kData) {
        body.push_back({line, DataNode{Text(reader_.next().text)}});
      } else if (reader_.peek().type == TokenType::kVariableBegin) {
        reader_.next();
        body.push_back({line, OutputNode{expressions_.parse_tuple()}});
        reader_.expect(TokenType::kVariableEnd, "'}}'");
      } else {
        reader_.expect(TokenType::kBlockBegin, "'{%'");
        if (at_end(ends)) break;
        body.push_back({line, parse_statement(ends)});
      }
    }
    if (reader_.peek().type == TokenType::kEnd && ends.size() > 0) {
      reader_.fail_expected(core::join("'", *std::prev(ends.end()), "'"));
    }
    --nesting_;
    return body;
  }

  bool at_end(Ends ends) const {
    return std::any_of(ends.begin(), ends.end(),
                       [&](std::string_view end) { return reader_.peek().is_name(end); });
  }

  void end_tag() { reader_.expect(TokenType::kBlockEnd, "'%}'"); }

  // Parses a body that ends with `{% name %}` and starts after the opening tag's words.
  Body parse_until(std::string_view name) {
    end_tag();
    Body body = parse_body({name});
    reader_.next();
    end_tag();
    return body;
  }

  Statement::Node parse_statement(Ends ends) {
    struct Tag {
      std::string_view name;
      Statement::Node (StatementParser::*parse)();
    };
    static constexpr Tag kTags[] = {{"if", &StatementParser::parse_if},
                                    {"for", &StatementParser::parse_for},
                                    {"set", &StatementParser::parse_set},
                                    {"macro", &StatementParser::parse_macro},
                                    {"call", &StatementParser::parse_call_block},
                                    {"filter", &StatementParser::parse_filter_block},
                                    {"with", &StatementParser::parse_with},
                                    {"generation", &StatementParser::parse_generation},
                                    {"print", &StatementParser::parse_print},
                                    {"break", &StatementParser::parse_break},
                                    {"continue", &StatementParser::parse_continue}};
    for (const Tag& tag : kTags) {
      if (reader_.skip_name(tag.name)) return (this->*tag.parse)();
    }
    const std::string name = reader_.expect_any_name("the name of a tag");
    if (ends.size() == 0) reader_.fail("unknown tag '", name, "'");
    reader_.fail("unknown tag '", name, "', expected '", *std::prev(ends.end()), "' before it");
  }

  Statement::Node parse_if() {
    IfNode node;
    expressions_.enter_condition();
    for (;;) {
      ExprPtr test = expressions_.parse_tuple(false);
      end_tag();
      node.branches.emplace_back(std::move(test), parse_body({"elif", "else", "endif"}));
      if (!reader_.skip_name("elif")) break;
    }
    if (reader_.skip_name("else")) {
      end_tag();
      node.otherwise = parse_body({"endif"});
    }
    reader_.expect_name("endif");
    end_tag();
    expressions_.leave_condition();
    return node;
  }

  Statement::Node parse_for() {
    ForNode node;
    node.target = parse_target();
    reader_.expect_name("in");
    node.items = expressions_.parse_tuple(false);
    if (reader_.skip_name("if")) node.filter = expressions_.parse_expression();
    if (reader_.peek().is_name("recursive")) reader_.fail("recursive loops are not supported");
    end_tag();
    ++loops_;
    node.body = parse_body({"else", "endfor"});
    --loops_;
    if (reader_.skip_name("else")) {
      end_tag();
      node.otherwise = parse_body({"endfor"});
    }
    reader_.expect_name("endfor");
    end_tag();
    return node;
  }

  Target parse_target() {
    Target target;
    const bool parenthesis = reader_.skip_operator("(");
    target.unpack = parenthesis;
    do {
      const Token& token = reader_.peek();
      if (token.is_name("in") || token.type != TokenType::kName) break;
      target.names.push_back(reader_.next().text);
      check_assignable(target.names.back());
    } while (reader_.skip_operator(",") && (target.unpack = true));
    if (target.names.empty()) reader_.fail_expected("a name");
    if (parenthesis) reader_.expect_operator(")");
    if (!target.unpack && reader_.skip_operator(".")) {
      target.attribute = reader_.expect_any_name("an attribute's name");
    }
    return target;
  }

  void check_assignable(const std::string& name) const {
    for (const std::string_view constant : {"true", "false", "none", "True", "False", "None"}) {
      if (name == constant) reader_.fail("cannot assign to '", name, "'");
    }
  }

  Statement::Node parse_set() {
    Target target = parse_target();
    if (reader_.skip_operator("=")) {
      ExprPtr value = expressions_.parse_tuple();
      end_tag();
      return SetNode{std::move(target), std::move(value)};
    }
    ExprPtr filter = reader_.skip_operator("|") ? expressions_.parse_block_filter() : nullptr;
    return CaptureNode{std::move(target), std::move(filter), parse_until("endset")};
  }

  std::vector<Parameter> parse_parameters() {
    std::vector<Parameter> parameters;
    reader_.expect_operator("(");
    while (!reader_.skip_operator(")")) {
      if (!parameters.empty()) reader_.expect_operator(",");
      if (reader_.skip_operator(")")) break;
      Parameter parameter{reader_.expect_any_name("a parameter's name"), nullptr};
      if (reader_.skip_operator("=")) {
        parameter.fallback = expressions_.parse_expression();
      } else if (!parameters.empty() && parameters.back().fallback != nullptr) {
        reader_.fail("a parameter without a default stands after one with a default");
      }
      parameters.push_back(std::move(parameter));
    }
    return parameters;
  }

  // Loops around a macro are not its own.
  Body parse_macro_body(std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    Body body = parse_until(end);
    loops_ = loops;
    return body;
  }

  Statement::Node parse_macro() {
    MacroNode node;
    node.name = reader_.expect_any_name("a macro's name");
    node.parameters = parse_parameters();
    node.body = parse_macro_body("endmacro");
    return node;
  }

  Statement::Node parse_call_block() {
    CallBlockNode node;
    node.caller.name = "caller";
    if (reader_.peek().is_operator("(")) node.caller.parameters = parse_parameters();
    node.call = expressions_.parse_call();
    node.caller.body = parse_macro_body("endcall");
    return node;
  }

  Statement::Node parse_filter_block() {
    FilterBlockNode node;
    node.filter = expressions_.parse_block_filter();
    node.body = parse_until("endfilter");
    return node;
  }

  Statement::Node parse_with() {
    WithNode node;
    while (reader_.peek().type != TokenType::kBlockEnd) {
      if (!node.values.empty()) reader_.expect_operator(",");
      Target target;
      target.names.push_back(reader_.expect_any_name("a name"));
      reader_.expect_operator("=");
      node.values.emplace_back(std::move(target), expressions_.parse_expression());
    }
    node.body = parse_until("endwith");
    return node;
  }

  Statement::Node parse_generation() { return GenerationNode{parse_until("endgeneration")}; }

  Statement::Node parse_print() {
    OutputNode node{expressions_.parse_tuple()};
    end_tag();
    return node;
  }

  void check_in_loop(std::string_view tag) const {
    if (loops_ == 0) reader_.fail("'", tag, "' outside of a loop");
  }

  Statement::Node parse_break() {
    check_in_loop("break");
    end_tag();
    return BreakNode{};
  }

  Statement::Node parse_continue() {
    check_in_loop("continue");
    end_tag();
    return ContinueNode{};
  }

  TokenReader& reader_;
  ExpressionParser expressions_;
  int nesting_ = 0;
  int loops_ = 0;
};

}  // namespace

Body parse(const std::string& source, const std::string& where) {
  TokenReader reader(lex(source, where), where);
  return StatementParser(reader).parse_template();
}

}  // namespace weft::text::jinja
