#include <algorithm>
#include <cmath>
#include <limits>

#include "weft/text/jinja/eval.h"

namespace weft::text::jinja {
namespace {

constexpr const char* kOperatorNames[] = {"+", "-", "*", "/", "//", "%", "**", "and", "or"};

[[noreturn]] void fail_operands(BinaryOp op, const Value& left, const Value& right) {
  for (const Value* value : {&left, &right}) {
    if (value->is_undefined()) fail_undefined(*value);
  }
  fault("unsupported operand types for ", kOperatorNames[static_cast<int>(op)], ": '",
        type_name(left), "' and '", type_name(right), "'");
}

[[noreturn]] void fail_overflow() { fault("a whole number does not fit 64 bits"); }

// Quotient rounded down, as Python divides; the remainder has the divisor's sign.
Value floor_divide(int64_t a, int64_t b) {
  if (b == 0) fault("division by zero");
  if (a == std::numeric_limits<int64_t>::min() && b == -1) fail_overflow();
  const int64_t quotient = a / b;
  return Value::integer(a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient);
}

Value modulo(int64_t a, int64_t b) {
  if (b == 0) fault("division by zero");
  if (b == -1) return Value::integer(0);
  const int64_t rest = a % b;
  return Value::integer(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
}

Value power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) fault("division by zero");
    return Value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  bool base_overflow = false;
  for (; exponent > 0; exponent >>= 1) {
    if ((exponent & 1) != 0) {
      if (base_overflow || __builtin_mul_overflow(result, base, &result)) fail_overflow();
    }
    base_overflow = base_overflow || __builtin_mul_overflow(base, base, &base);
  }
  return Value::integer(result);
}

Value integer_operation(BinaryOp op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case BinaryOp::kAdd:
      if (__builtin_add_overflow(a, b, &result)) fail_overflow();
      return Value::integer(result);
    case BinaryOp::kSubtract:
      if (__builtin_sub_overflow(a, b, &result)) fail_overflow();
      return Value::integer(result);
    case BinaryOp::kMultiply:
      if (__builtin_mul_overflow(a, b, &result)) fail_overflow();
      return Value::integer(result);
    case BinaryOp::kDivide:
      if (b == 0) fault("division by zero");
      return Value(static_cast<double>(a) / static_cast<double>(b));
    case BinaryOp::kFloorDivide:
      return floor_divide(a, b);
    case BinaryOp::kModulo:
      return modulo(a, b);
    default:
      return power(a, b);
  }
}

Value float_operation(BinaryOp op, double a, double b) {
  const bool divides =
      op == BinaryOp::kDivide || op == BinaryOp::kFloorDivide || op == BinaryOp::kModulo;
  if (divides && b == 0) fault("division by zero");
  switch (op) {
    case BinaryOp::kAdd:
      return Value(a + b);
    case BinaryOp::kSubtract:
      return Value(a - b);
    case BinaryOp::kMultiply:
      return Value(a * b);
    case BinaryOp::kDivide:
      return Value(a / b);
    case BinaryOp::kFloorDivide:
      return Value(std::floor(a / b));
    case BinaryOp::kModulo: {
      const double rest = std::fmod(a, b);
      return Value(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
    }
    default:
      return Value(std::pow(a, b));
  }
}

Value repeat_text(Context& context, const Text& text, int64_t times) {
  if (times <= 0 || text.empty()) return Value::text("");
  if (static_cast<uint64_t>(times) > kMaxTextBytes) charge_text(context, kMaxTextBytes + 1);
  charge_text(context, text.size() * static_cast<size_t>(times));
  context.charge(static_cast<uint64_t>(times) / 8);
  Text out;
  for (int64_t i = 0; i < times; ++i) out.append(text);
  return Value::text(std::move(out));
}

Value repeat_list(Context& context, const List& list, int64_t times) {
  std::vector<Value> out;
  if (times > 0 && !list.items.empty()) {
    const auto count = static_cast<unsigned __int128>(list.items.size()) * times;
    charge_items(context, static_cast<size_t>(std::min<unsigned __int128>(count, SIZE_MAX)));
    for (int64_t i = 0; i < times; ++i) out.insert(out.end(), list.items.begin(), list.items.end());
  }
  return Value::list(std::move(out), list.is_tuple);
}

Value add_sequences(Context& context, const Value& left, const Value& right) {
  if (const Text* a = left.as_text(), *b = right.as_text(); a != nullptr && b != nullptr) {
    charge_text(context, a->size() + b->size());
    Text out = *a;
    out.append(*b);
    return Value::text(std::move(out));
  }
  const List *a = left.as_list(), *b = right.as_list();
  if (a == nullptr || b == nullptr || a->is_tuple != b->is_tuple) {
    fail_operands(BinaryOp::kAdd, left, right);
  }
  charge_items(context, a->items.size() + b->items.size());
  std::vector<Value> out = a->items;
  out.insert(out.end(), b->items.begin(), b->items.end());
  return Value::list(std::move(out), a->is_tuple);
}

Value multiply_sequence(Context& context, const Value& left, const Value& right) {
  const Value& sequence = left.is_integer() ? right : left;
  const Value& times = left.is_integer() ? left : right;
  if (times.is_integer()) {
    if (const Text* text = sequence.as_text()) {
      return repeat_text(context, *text, times.as_integer());
    }
    if (const List* list = sequence.as_list()) {
      return repeat_list(context, *list, times.as_integer());
    }
  }
  fail_operands(BinaryOp::kMultiply, left, right);
}

// What it walks is charged already.
bool contains(Context& context, const Value& container, const Value& item) {
  if (container.is_undefined()) return false;
  if (const Text* text = container.as_text()) {
    const Text* part = item.as_text();
    if (part == nullptr) {
      fault("'in <string>' requires string as left operand, not ", type_name(item));
    }
    return text->bytes().find(part->bytes()) != std::string::npos;
  }
  if (const List* list = container.as_list()) {
    return std::any_of(list->items.begin(), list->items.end(),
                       [&](const Value& value) { return equals(value, item); });
  }
  if (const Dict* dict = container.as_dict()) {
    context.charge(dict->entries.size() * extent_of(item).weight);
    return dict->find(item) != nullptr;
  }
  fault("argument of type '", type_name(container), "' is not iterable");
}

}  // namespace

void fail_undefined(const Value& value) {
  const Undefined& missing = *value.get<Undefined>();
  fault(missing.hint != nullptr ? *missing.hint : "a value is undefined");
}

Value apply_binary(Context& context, BinaryOp op, const Value& left, const Value& right) {
  if (left.is_number() && right.is_number()) {
    if (left.is_integer() && right.is_integer()) {
      return integer_operation(op, left.as_integer(), right.as_integer());
    }
    return float_operation(op, left.as_double(), right.as_double());
  }
  if (op == BinaryOp::kAdd) return add_sequences(context, left, right);
  if (op == BinaryOp::kMultiply) return multiply_sequence(context, left, right);
  if (op == BinaryOp::kModulo && left.as_text() != nullptr) {
    fault("formatting a string with % is not supported; join the parts with ~");
  }
  fail_operands(op, left, right);
}

bool apply_compare(Context& context, CompareOp op, const Value& left, const Value& right) {
  charge_walk(context, left);
  charge_walk(context, right);
  switch (op) {
    case CompareOp::kEqual:
      return equals(left, right);
    case CompareOp::kNotEqual:
      return !equals(left, right);
    case CompareOp::kLess:
      return less(left, right);
    case CompareOp::kLessEqual:
      return !less(right, left);
    case CompareOp::kGreater:
      return less(right, left);
    case CompareOp::kGreaterEqual:
      return !less(left, right);
    case CompareOp::kIn:
      return contains(context, right, left);
    default:
      return !contains(context, right, left);
  }
}

Value apply_unary(UnaryOp op, const Value& operand) {
  if (op == UnaryOp::kNot) return Value(!is_true(operand));
  if (operand.is_undefined()) fail_undefined(operand);
  if (!operand.is_number()) {
    fault("bad operand type for unary ", op == UnaryOp::kMinus ? "-" : "+", ": '",
          type_name(operand), "'");
  }
  if (const double* number = operand.get<double>()) {
    return Value(op == UnaryOp::kMinus ? -*number : *number);
  }
  if (op == UnaryOp::kPlus) return Value::integer(operand.as_integer());
  int64_t result = 0;
  if (__builtin_sub_overflow(int64_t{0}, operand.as_integer(), &result)) fail_overflow();
  return Value::integer(result);
}

}  // namespace weft::text::jinja
