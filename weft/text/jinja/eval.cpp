#include "weft/text/jinja/eval.h"

#include <algorithm>
#include <iterator>

namespace weft::text::jinja {
namespace {

// One unit is an expression, eight a statement, a turn of a loop or a call.
constexpr uint64_t kMaxSteps = 1'000'000;
constexpr uint64_t kUnitsPerStep = 8;
// Nested expressions, statements and calls together; more would overflow the stack.
constexpr int kMaxCallDepth = 400;

// Counts how deep evaluation is, for as long as it lives.
class DepthGuard {
 public:
  explicit DepthGuard(int& depth) : depth_(depth) {
    if (++depth_ <= kMaxCallDepth) return;
    --depth_;
    fault("recursion deeper than the limit of ", kMaxCallDepth, " levels");
  }
  ~DepthGuard() { --depth_; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

 private:
  int& depth_;
};

}  // namespace

const Value* Scope::find(const std::string& name) const {
  for (const Scope* scope = this; scope != nullptr; scope = scope->parent_) {
    const auto it = scope->values_.find(name);
    if (it != scope->values_.end()) return &it->second;
  }
  return nullptr;
}

Evaluator::Evaluator(const std::vector<std::pair<std::string, Value>>& inputs)
    : work_left_(kMaxSteps * kUnitsPerStep), globals_(nullptr) {
  for (const auto& [name, value] : inputs) globals_.set(name, value);
}

void Evaluator::charge(uint64_t work) {
  if (work > work_left_) fault("takes more than the limit of ", kMaxSteps, " steps");
  work_left_ -= work;
}

Namespace& Evaluator::make_namespace() { return namespaces_.emplace_back(); }

Scope& Evaluator::make_scope(Scope* parent) { return scopes_.emplace_back(parent); }

Text Evaluator::run(const Body& body) {
  Text out;
  run_body(body, make_scope(&globals_), out);
  return out;
}

void Evaluator::write(Text& out, const Text& text) {
  if (out.size() + text.size() > kMaxTextBytes) {
    fault("writes more than the limit of ", kMaxTextBytes, " bytes");
  }
  charge(text.size() / 64);
  out.append(text);
}

Evaluator::Flow Evaluator::run_body(const Body& body, Scope& scope, Text& out) {
  for (const Statement& statement : body) {
    const Flow flow = run_statement(statement, scope, out);
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Evaluator::Flow Evaluator::run_statement(const Statement& statement, Scope& scope, Text& out) {
  const DepthGuard guard(depth_);
  charge(kUnitsPerStep);
  line_ = statement.line;
  const auto& node = statement.node;
  if (const auto* data = std::get_if<DataNode>(&node)) {
    write(out, data->text);
  } else if (const auto* output = std::get_if<OutputNode>(&node)) {
    const Value value = eval(*output->value, scope);
    charge_walk(*this, value);
    write(out, to_text(value));
  } else if (const auto* branch = std::get_if<IfNode>(&node)) {
    return run_if(*branch, scope, out);
  } else if (const auto* loop = std::get_if<ForNode>(&node)) {
    return run_for(*loop, scope, out);
  } else if (const auto* set = std::get_if<SetNode>(&node)) {
    assign(set->target, eval(*set->value, scope), scope);
  } else if (const auto* block = std::get_if<CaptureNode>(&node)) {
    assign(block->target, filtered_capture(block->filter, block->body, scope), scope);
  } else if (const auto* macro = std::get_if<MacroNode>(&node)) {
    const Callable callable{.name = macro->name, .macro = macro, .scope = &scope};
    scope.set(macro->name, Value(std::make_shared<const Callable>(callable)));
  } else if (const auto* call_block = std::get_if<CallBlockNode>(&node)) {
    run_call_block(*call_block, scope, out);
  } else if (const auto* filter = std::get_if<FilterBlockNode>(&node)) {
    write(out, to_text(filtered_capture(filter->filter, filter->body, scope)));
  } else if (const auto* with = std::get_if<WithNode>(&node)) {
    return run_with(*with, scope, out);
  } else if (const auto* generation = std::get_if<GenerationNode>(&node)) {
    write(out, capture(generation->body, scope));
  } else {
    return std::holds_alternative<BreakNode>(node) ? Flow::kBreak : Flow::kContinue;
  }
  return Flow::kNormal;
}

Evaluator::Flow Evaluator::run_if(const IfNode& node, Scope& scope, Text& out) {
  for (const auto& [test, body] : node.branches) {
    if (is_true(eval(*test, scope))) return run_body(body, scope, out);
  }
  return run_body(node.otherwise, scope, out);
}

std::vector<Value> Evaluator::loop_items(const ForNode& node, Scope& scope) {
  std::vector<Value> items = to_items(eval(*node.items, scope));
  charge_items(*this, items.size());
  if (node.filter == nullptr) return items;
  Scope& inner = make_scope(&scope);
  std::vector<Value> kept;
  for (Value& item : items) {
    charge(kUnitsPerStep);
    inner.clear();
    assign(node.target, item, inner);
    if (is_true(eval(*node.filter, inner))) kept.push_back(std::move(item));
  }
  return kept;
}

Evaluator::Flow Evaluator::run_for(const ForNode& node, Scope& scope, Text& out) {
  LoopState& loop = loops_.emplace_back();
  loop.items = loop_items(node, scope);
  Scope& inner = make_scope(&scope);
  for (loop.index = 0; loop.index < loop.items.size(); ++loop.index) {
    charge(kUnitsPerStep);
    inner.clear();
    inner.set("loop", Value(&loop));
    assign(node.target, loop.items[loop.index], inner);
    if (run_body(node.body, inner, out) == Flow::kBreak) break;
  }
  if (!loop.items.empty()) return Flow::kNormal;
  inner.clear();
  return run_body(node.otherwise, inner, out);
}

void Evaluator::assign(const Target& target, Value value, Scope& scope) {
  if (!target.attribute.empty()) {
    const Value* space = scope.find(target.names[0]);
    auto* const* pointer = space == nullptr ? nullptr : space->get<Namespace*>();
    if (pointer == nullptr) fault("cannot assign attribute on non-namespace object");
    auto& attributes = (*pointer)->attributes;
    charge(attributes.size() / 8);
    const auto same = std::find_if(attributes.begin(), attributes.end(), [&](const auto& entry) {
      return entry.first == target.attribute;
    });
    if (same != attributes.end()) {
      same->second = std::move(value);
    } else {
      attributes.emplace_back(target.attribute, std::move(value));
    }
    return;
  }
  if (!target.unpack) return scope.set(target.names[0], std::move(value));
  const std::vector<Value> items = to_items(value);
  if (items.size() != target.names.size()) {
    fault("expected ", target.names.size(), " values to unpack, got ", items.size());
  }
  for (size_t i = 0; i < items.size(); ++i) scope.set(target.names[i], items[i]);
}

Text Evaluator::capture(const Body& body, Scope& scope) {
  Text out;
  run_body(body, make_scope(&scope), out);
  return out;
}

Value Evaluator::filtered_capture(const ExprPtr& filter, const Body& body, Scope& scope) {
  Value text = Value::text(capture(body, scope));
  if (filter == nullptr) return text;
  captured_.push_back(std::move(text));
  Value result = eval(*filter, scope);
  captured_.pop_back();
  return result;
}

void Evaluator::run_call_block(const CallBlockNode& node, Scope& scope, Text& out) {
  const auto& call_node = std::get<CallExpr>(node.call->node);
  const Value callee = eval(*call_node.callee, scope);
  Args args = eval_args(call_node.args, scope);
  const Callable caller{.name = "caller", .macro = &node.caller, .scope = &scope};
  args.named.emplace_back("caller", Value(std::make_shared<const Callable>(caller)));
  write(out, to_text(call(callee, args)));
}

Evaluator::Flow Evaluator::run_with(const WithNode& node, Scope& scope, Text& out) {
  Scope& inner = make_scope(&scope);
  for (const auto& [target, value] : node.values) assign(target, eval(*value, scope), inner);
  return run_body(node.body, inner, out);
}

Value Evaluator::eval(const Expr& expr, Scope& scope) {
  const DepthGuard guard(depth_);
  charge(1);
  line_ = expr.line;
  return std::visit([&](const auto& node) { return eval(node, scope); }, expr.node);
}

Value Evaluator::eval(const CallExpr& node, Scope& scope) {
  const Value callee = eval(*node.callee, scope);
  const Args args = eval_args(node.args, scope);
  return call(callee, args);
}

Args Evaluator::eval_args(const CallArgs& args, Scope& scope) {
  Args values;
  for (const ExprPtr& arg : args.positional) values.positional.push_back(eval(*arg, scope));
  if (args.more_positional != nullptr) {
    std::vector<Value> more = to_items(eval(*args.more_positional, scope));
    charge_items(*this, more.size());
    std::move(more.begin(), more.end(), std::back_inserter(values.positional));
  }
  for (const auto& [name, arg] : args.named) values.named.emplace_back(name, eval(*arg, scope));
  if (args.more_named != nullptr) add_named(eval(*args.more_named, scope), values);
  return values;
}

// What `**entries` adds.
void Evaluator::add_named(const Value& entries, Args& values) {
  const Dict* dict = entries.as_dict();
  if (dict == nullptr) fault("argument after ** must be a mapping, not ", type_name(entries));
  constexpr size_t kMaxNamed = 1000;
  if (dict->entries.size() > kMaxNamed) fault("more than ", kMaxNamed, " arguments behind **");
  for (const auto& [key, value] : dict->entries) {
    charge(1 + values.named.size() / 8);
    const std::string name = string_of(key, "a name behind **");
    const bool is_taken = std::any_of(values.named.begin(), values.named.end(),
                                      [&](const auto& arg) { return arg.first == name; });
    if (is_taken) fault("got multiple values for keyword argument '", name, "'");
    values.named.emplace_back(name, value);
  }
}

Value Evaluator::call(const Value& callee, const Args& args) {
  charge(kUnitsPerStep);
  if (callee.is_undefined()) fail_undefined(callee);
  const auto* callable = callee.get<std::shared_ptr<const Callable>>();
  if (callable == nullptr) fault("'", type_name(callee), "' object is not callable");
  // Keeps the callable alive: the template may rebind its name meanwhile.
  const std::shared_ptr<const Callable> held = *callable;
  if (held->function != nullptr) return held->function(*this, args);
  if (held->method != nullptr) return held->method(*this, held->self, args);
  return call_macro(*held, args);
}

Value Evaluator::call_macro(const Callable& macro, const Args& args) {
  const DepthGuard guard(depth_);
  const int line = line_;
  Scope& scope = make_scope(macro.scope);
  bind_parameters(*macro.macro, args, scope);
  Text out;
  run_body(macro.macro->body, scope, out);
  line_ = line;
  return Value::text(std::move(out));
}

void Evaluator::bind_parameters(const MacroNode& macro, const Args& args, Scope& scope) {
  const auto& parameters = macro.parameters;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& parameter = parameters[i];
    const auto named = std::find_if(args.named.begin(), args.named.end(),
                                    [&](const auto& arg) { return arg.first == parameter.name; });
    if (i < args.positional.size()) {
      scope.set(parameter.name, args.positional[i]);
    } else if (named != args.named.end()) {
      scope.set(parameter.name, named->second);
    } else if (parameter.fallback != nullptr) {
      scope.set(parameter.name, eval(*parameter.fallback, scope));
    } else {
      scope.set(parameter.name,
                Value::undefined("parameter '", parameter.name, "' was not provided"));
    }
  }
  std::vector<Value> more;
  if (args.positional.size() > parameters.size()) {
    more.assign(args.positional.begin() + static_cast<ptrdiff_t>(parameters.size()),
                args.positional.end());
  }
  scope.set("varargs", Value::list(std::move(more), true));
  std::vector<std::pair<Value, Value>> others;
  for (const auto& [name, value] : args.named) {
    const bool known = std::any_of(parameters.begin(), parameters.end(),
                                   [&name = name](const Parameter& p) { return p.name == name; });
    if (name == "caller") scope.set(name, value);
    if (!known && name != "caller") others.emplace_back(Value::text(name), value);
  }
  scope.set("kwargs", Value::dict(std::move(others)));
}

}  // namespace weft::text::jinja
