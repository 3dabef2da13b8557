#include "weft/text/jinja/eval.h"

namespace weft::text::jinja {

Value Evaluator::eval(const LiteralExpr& node, Scope&) { return node.value; }

Value Evaluator::eval(const NameExpr& node, Scope& scope) {
  if (const Value* value = scope.find(node.name)) return *value;
  if (const Callable::Function function = find_function(node.name)) {
    return Value(
        std::make_shared<const Callable>(Callable{.name = node.name, .function = function}));
  }
  return Value::undefined("'", node.name, "' is undefined");
}

Value Evaluator::eval(const ListExpr& node, Scope& scope) {
  std::vector<Value> items;
  items.reserve(node.items.size());
  for (const ExprPtr& item : node.items) items.push_back(eval(*item, scope));
  return Value::list(std::move(items), node.is_tuple);
}

Value Evaluator::eval(const DictExpr& node, Scope& scope) {
  std::vector<std::pair<Value, Value>> entries;
  for (const auto& [key, value] : node.entries) {
    Value key_value = eval(*key, scope);
    entries.emplace_back(std::move(key_value), eval(*value, scope));
    charge(entries.size() / 8);
  }
  return Value::dict(std::move(entries));
}

Value Evaluator::eval(const UnaryExpr& node, Scope& scope) {
  return apply_unary(node.op, eval(*node.operand, scope));
}

Value Evaluator::eval(const BinaryExpr& node, Scope& scope) {
  Value left = eval(*node.left, scope);
  if (node.op == BinaryOp::kAnd) return is_true(left) ? eval(*node.right, scope) : left;
  if (node.op == BinaryOp::kOr) return is_true(left) ? left : eval(*node.right, scope);
  return apply_binary(*this, node.op, left, eval(*node.right, scope));
}

Value Evaluator::eval(const ConcatExpr& node, Scope& scope) {
  Text out;
  for (const ExprPtr& part : node.parts) {
    const Value value = eval(*part, scope);
    charge_walk(*this, value);
    const Text text = to_text(value);
    charge_text(*this, out.size() + text.size());
    out.append(text);
  }
  return Value::text(std::move(out));
}

Value Evaluator::eval(const CompareExpr& node, Scope& scope) {
  Value left = eval(*node.first, scope);
  for (const auto& [op, expr] : node.rest) {
    Value right = eval(*expr, scope);
    if (!apply_compare(*this, op, left, right)) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Value Evaluator::eval(const ConditionExpr& node, Scope& scope) {
  if (is_true(eval(*node.test, scope))) return eval(*node.yes, scope);
  if (node.no != nullptr) return eval(*node.no, scope);
  return Value::undefined("the inline if-expression evaluated to false and has no else");
}

Value Evaluator::eval(const AttributeExpr& node, Scope& scope) {
  const Value object = eval(*node.object, scope);
  if (object.is_undefined()) fail_undefined(object);
  if (const Dict* dict = object.as_dict()) charge(dict->entries.size() / 8);
  return get_attribute(object, node.name);
}

Value Evaluator::eval(const ItemExpr& node, Scope& scope) {
  const Value object = eval(*node.object, scope);
  const Value key = eval(*node.key, scope);
  if (object.is_undefined()) fail_undefined(object);
  return get_item(*this, object, key);
}

Value Evaluator::eval(const SliceExpr& node, Scope& scope) {
  const Value object = eval(*node.object, scope);
  const auto bound = [&](const ExprPtr& expr) {
    return expr == nullptr ? Value(None{}) : eval(*expr, scope);
  };
  SliceBounds bounds{bound(node.begin), bound(node.end), bound(node.step)};
  if (object.is_undefined()) fail_undefined(object);
  return apply_slice(*this, object, bounds);
}

Value Evaluator::eval(const FilterExpr& node, Scope& scope) {
  if (node.filter == nullptr) fault("no filter is named '", node.name, "'");
  const Value input = node.input == nullptr ? captured_.back() : eval(*node.input, scope);
  const Args args = eval_args(node.args, scope);
  charge(8);
  charge_walk(*this, input);
  return node.filter(*this, input, args);
}

Value Evaluator::eval(const TestExpr& node, Scope& scope) {
  if (node.test == nullptr) fault("no test is named '", node.name, "'");
  const Value input = eval(*node.input, scope);
  const Args args = eval_args(node.args, scope);
  charge_walk(*this, input);
  return Value(node.test(*this, input, args) != node.negated);
}

}  // namespace weft::text::jinja
