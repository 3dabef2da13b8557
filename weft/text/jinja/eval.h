#pragma once

#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

#include "weft/text/jinja/syntax/ast.h"

namespace weft::text::jinja {

/// Names and their values in one block, and the block around it.
class Scope {
 public:
  explicit Scope(Scope* parent) : parent_(parent) {}

  void set(const std::string& name, Value value) { values_[name] = std::move(value); }
  /// The value in this or the nearest outer scope, or nullptr.
  const Value* find(const std::string& name) const;
  void clear() { values_.clear(); }

 private:
  Scope* parent_;
  std::unordered_map<std::string, Value> values_;
};

/// Runs one template once. Owns what the template makes that could form cycles.
class Evaluator : public Context {
 public:
  /// `inputs` are the names that the template sees from the start.
  explicit Evaluator(const std::vector<std::pair<std::string, Value>>& inputs);

  /// The whole output. Throws Fault; `line()` then tells where.
  Text run(const Body& body);
  /// The line that is running.
  int line() const { return line_; }

  void charge(uint64_t work) override;
  Namespace& make_namespace() override;

 private:
  enum class Flow { kNormal, kBreak, kContinue };

  // Statements.
  Flow run_body(const Body& body, Scope& scope, Text& out);
  Flow run_statement(const Statement& statement, Scope& scope, Text& out);
  Flow run_if(const IfNode& node, Scope& scope, Text& out);
  Flow run_for(const ForNode& node, Scope& scope, Text& out);
  std::vector<Value> loop_items(const ForNode& node, Scope& scope);
  void run_call_block(const CallBlockNode& node, Scope& scope, Text& out);
  Flow run_with(const WithNode& node, Scope& scope, Text& out);
  void write(Text& out, const Text& text);
  Text capture(const Body& body, Scope& scope);
  Value filtered_capture(const ExprPtr& filter, const Body& body, Scope& scope);
  void assign(const Target& target, Value value, Scope& scope);
  Scope& make_scope(Scope* parent);

  // Expressions.
  Value eval(const Expr& expr, Scope& scope);
  Value eval(const LiteralExpr& node, Scope& scope);
  Value eval(const NameExpr& node, Scope& scope);
  Value eval(const ListExpr& node, Scope& scope);
  Value eval(const DictExpr& node, Scope& scope);
  Value eval(const UnaryExpr& node, Scope& scope);
  Value eval(const BinaryExpr& node, Scope& scope);
  Value eval(const ConcatExpr& node, Scope& scope);
  Value eval(const CompareExpr& node, Scope& scope);
  Value eval(const ConditionExpr& node, Scope& scope);
  Value eval(const AttributeExpr& node, Scope& scope);
  Value eval(const ItemExpr& node, Scope& scope);
  Value eval(const SliceExpr& node, Scope& scope);
  Value eval(const CallExpr& node, Scope& scope);
  Value eval(const FilterExpr& node, Scope& scope);
  Value eval(const TestExpr& node, Scope& scope);
  Args eval_args(const CallArgs& args, Scope& scope);
  void add_named(const Value& entries, Args& values);
  Value call(const Value& callee, const Args& args);
  Value call_macro(const Callable& macro, const Args& args);
  void bind_parameters(const MacroNode& macro, const Args& args, Scope& scope);

  uint64_t work_left_;
  int depth_ = 0;
  int line_ = 1;
  Scope globals_;
  /// The text that a filter block or block set captured, one level each.
  std::vector<Value> captured_;
  std::deque<Scope> scopes_;
  std::deque<LoopState> loops_;
  std::deque<Namespace> namespaces_;
};

/// The result of an operator other than `and`, `or`. Throws Fault.
Value apply_binary(Context& context, BinaryOp op, const Value& left, const Value& right);
bool apply_compare(Context& context, CompareOp op, const Value& left, const Value& right);
Value apply_unary(UnaryOp op, const Value& operand);
/// value[begin:end:step]; bounds may be None.
struct SliceBounds {
  Value begin;
  Value end;
  Value step;
};
/// object[begin:end:step] as Python has it.
Value apply_slice(Context& context, const Value& value, const SliceBounds& bounds);
/// The hint of an undefined value as a Fault.
[[noreturn]] void fail_undefined(const Value& value);

}  // namespace weft::text::jinja
