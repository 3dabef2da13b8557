#include "weft/text/jinja/eval.h"
#include "weft/text/jinja/strings.h"

namespace weft::text::jinja {
namespace {

// A test that depends on its input alone.
template <bool (*holds)(const Value&)>
bool simple(Context&, const Value& input, const Args& args) {
  bind("this test", args, {});
  return holds(input);
}

template <CompareOp op>
bool compared(Context& context, const Value& input, const Args& args) {
  const auto arg = bind("this test", args, {"other"});
  if (arg[0] == nullptr) fault("this test needs a value to compare with");
  return apply_compare(context, op, input, *arg[0]);
}

bool is_defined(const Value& v) { return !v.is_undefined(); }
bool is_undefined(const Value& v) { return v.is_undefined(); }
bool is_none(const Value& v) { return v.is_none(); }
bool is_string(const Value& v) { return v.as_text() != nullptr; }
bool is_mapping(const Value& v) { return v.as_dict() != nullptr; }
bool is_sequence(const Value& v) {
  return v.is_undefined() || is_string(v) || is_mapping(v) || v.as_list() != nullptr;
}
bool is_number(const Value& v) { return v.is_number(); }
bool is_integer(const Value& v) { return v.get<int64_t>() != nullptr; }
bool is_float(const Value& v) { return v.get<double>() != nullptr; }
bool is_boolean(const Value& v) { return v.get<bool>() != nullptr; }
bool is_truth(const Value& v) { return is_boolean(v) && is_true(v); }
bool is_falsehood(const Value& v) { return is_boolean(v) && !is_true(v); }
bool is_callable(const Value& v) { return v.get<std::shared_ptr<const Callable>>() != nullptr; }
bool is_odd(const Value& v) { return integer_of(v, "odd") % 2 != 0; }
bool is_even(const Value& v) { return integer_of(v, "even") % 2 == 0; }
bool is_escaped(const Value&) { return false; }
bool is_filter(const Value& v) { return is_string(v) && find_filter(v.as_text()->bytes()); }
bool is_test(const Value& v) { return is_string(v) && find_test(v.as_text()->bytes()); }

template <Case to>
bool is_cased(const Value& v) {
  const std::string text = to_text(v).bytes();
  const Case other = to == Case::kUpper ? Case::kLower : Case::kUpper;
  return change_case(text, to) == text && change_case(text, other) != text;
}

bool divisible_by(Context&, const Value& input, const Args& args) {
  const auto arg = bind("divisibleby", args, {"num"});
  const int64_t divisor = arg[0] == nullptr ? 0 : integer_of(*arg[0], "divisibleby");
  if (divisor == 0) fault("division by zero");
  return divisor == -1 || integer_of(input, "divisibleby") % divisor == 0;
}

// Identity: in a template's values it shows only for the constants.
bool same_as(Context&, const Value& input, const Args& args) {
  const auto arg = bind("sameas", args, {"other"});
  if (arg[0] == nullptr) fault("sameas needs a value to compare with");
  return input.data().index() == arg[0]->data().index() && equals(input, *arg[0]);
}

constexpr Named<Test> kTests[] = {
    {"!=", compared<CompareOp::kNotEqual>},
    {"<", compared<CompareOp::kLess>},
    {"<=", compared<CompareOp::kLessEqual>},
    {"==", compared<CompareOp::kEqual>},
    {">", compared<CompareOp::kGreater>},
    {">=", compared<CompareOp::kGreaterEqual>},
    {"boolean", simple<is_boolean>},
    {"callable", simple<is_callable>},
    {"defined", simple<is_defined>},
    {"divisibleby", divisible_by},
    {"eq", compared<CompareOp::kEqual>},
    {"equalto", compared<CompareOp::kEqual>},
    {"escaped", simple<is_escaped>},
    {"even", simple<is_even>},
    {"false", simple<is_falsehood>},
    {"filter", simple<is_filter>},
    {"float", simple<is_float>},
    {"ge", compared<CompareOp::kGreaterEqual>},
    {"greaterthan", compared<CompareOp::kGreater>},
    {"gt", compared<CompareOp::kGreater>},
    {"in", compared<CompareOp::kIn>},
    {"integer", simple<is_integer>},
    {"iterable", simple<is_sequence>},
    {"le", compared<CompareOp::kLessEqual>},
    {"lessthan", compared<CompareOp::kLess>},
    {"lower", simple<is_cased<Case::kLower>>},
    {"lt", compared<CompareOp::kLess>},
    {"mapping", simple<is_mapping>},
    {"ne", compared<CompareOp::kNotEqual>},
    {"none", simple<is_none>},
    {"number", simple<is_number>},
    {"odd", simple<is_odd>},
    {"sameas", same_as},
    {"sequence", simple<is_sequence>},
    {"string", simple<is_string>},
    {"test", simple<is_test>},
    {"true", simple<is_truth>},
    {"undefined", simple<is_undefined>},
    {"upper", simple<is_cased<Case::kUpper>>},
};

}  // namespace

Test find_test(std::string_view name) { return find_named<Test>(kTests, name); }

}  // namespace weft::text::jinja
