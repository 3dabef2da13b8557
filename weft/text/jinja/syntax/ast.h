#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "weft/text/jinja/callable.h"
#include "weft/text/jinja/value.h"

namespace weft::text::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

/// Arguments as they are written.
struct CallArgs {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  /// `*items` and `**entries`, or nullptr.
  ExprPtr more_positional;
  ExprPtr more_named;
};

/// Operators with one operand.
enum class UnaryOp { kNot, kMinus, kPlus };
/// Operators with two operands.
enum class BinaryOp {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kAnd,
  kOr
};
/// Comparisons and membership.
enum class CompareOp { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };

/// A constant.
struct LiteralExpr {
  Value value;
};
/// A variable.
struct NameExpr {
  std::string name;
};
/// [a, b] or (a, b).
struct ListExpr {
  std::vector<ExprPtr> items;
  bool is_tuple;
};
/// {a: b}.
struct DictExpr {
  std::vector<std::pair<ExprPtr, ExprPtr>> entries;
};
/// -a, +a, not a.
struct UnaryExpr {
  UnaryOp op;
  ExprPtr operand;
};
/// Binary operators, such as a + b.
struct BinaryExpr {
  BinaryOp op;
  ExprPtr left;
  ExprPtr right;
};
/// Parts joined by `~`.
struct ConcatExpr {
  std::vector<ExprPtr> parts;
};
/// a < b <= c: each with its neighbour.
struct CompareExpr {
  ExprPtr first;
  std::vector<std::pair<CompareOp, ExprPtr>> rest;
};
/// `yes if test else no`; without `no` undefined.
struct ConditionExpr {
  ExprPtr test;
  ExprPtr yes;
  ExprPtr no;
};
/// object.name.
struct AttributeExpr {
  ExprPtr object;
  std::string name;
};
/// object[key].
struct ItemExpr {
  ExprPtr object;
  ExprPtr key;
};
/// Bounds may be null.
struct SliceExpr {
  ExprPtr object;
  ExprPtr begin;
  ExprPtr end;
  ExprPtr step;
};
/// callee(args).
struct CallExpr {
  ExprPtr callee;
  CallArgs args;
};
/// `input` is null for the block that a filter block or a block set captured.
struct FilterExpr {
  ExprPtr input;
  std::string name;
  Filter filter;
  CallArgs args;
};
/// input is [not] name(args).
struct TestExpr {
  ExprPtr input;
  std::string name;
  Test test;
  CallArgs args;
  bool negated;
};

/// An expression; `depth` bounds the recursion of whoever walks it.
struct Expr {
  using Node = std::variant<LiteralExpr, NameExpr, ListExpr, DictExpr, UnaryExpr, BinaryExpr,
                            ConcatExpr, CompareExpr, ConditionExpr, AttributeExpr, ItemExpr,
                            SliceExpr, CallExpr, FilterExpr, TestExpr>;
  int line;
  int depth;
  Node node;
};

/// 0 for no expression.
inline int depth(const ExprPtr& expr) { return expr == nullptr ? 0 : expr->depth; }

struct Statement;
using Body = std::vector<Statement>;

/// What `set`, `for` and `with` assign to: names, or one attribute of a namespace.
struct Target {
  std::vector<std::string> names;
  /// With an attribute, `names` holds the namespace's name alone.
  std::string attribute;
  /// Written with a comma or parentheses: the value is unpacked even into one name.
  bool unpack = false;
};

/// Text between tags.
struct DataNode {
  Text text;
};
/// {{ value }}.
struct OutputNode {
  ExprPtr value;
};
/// {% if %} with its elifs and its else.
struct IfNode {
  std::vector<std::pair<ExprPtr, Body>> branches;
  Body otherwise;
};
/// {% for %}; `filter` may be null.
struct ForNode {
  Target target;
  ExprPtr items;
  ExprPtr filter;
  Body body;
  Body otherwise;
};
/// {% set target = value %}.
struct SetNode {
  Target target;
  ExprPtr value;
};
/// `filter` is null or a chain of filters that starts at the captured text.
struct CaptureNode {
  Target target;
  ExprPtr filter;
  Body body;
};
/// A macro's parameter; `fallback` may be null.
struct Parameter {
  std::string name;
  ExprPtr fallback;
};
/// {% macro name(parameters) %}.
struct MacroNode {
  std::string name;
  std::vector<Parameter> parameters;
  Body body;
};
/// {% call %}: its body becomes the macro `caller`.
struct CallBlockNode {
  MacroNode caller;
  ExprPtr call;
};
/// {% filter %}.
struct FilterBlockNode {
  ExprPtr filter;
  Body body;
};
/// {% with %}.
struct WithNode {
  std::vector<std::pair<Target, ExprPtr>> values;
  Body body;
};
/// A `{% generation %}` block: its body as it is.
struct GenerationNode {
  Body body;
};
/// {% break %}.
struct BreakNode {};
/// {% continue %}.
struct ContinueNode {};

/// One tag or text, with its line.
struct Statement {
  using Node = std::variant<DataNode, OutputNode, IfNode, ForNode, SetNode, CaptureNode, MacroNode,
                            CallBlockNode, FilterBlockNode, WithNode, GenerationNode, BreakNode,
                            ContinueNode>;
  int line;
  Node node;
};

}  // namespace weft::text::jinja
