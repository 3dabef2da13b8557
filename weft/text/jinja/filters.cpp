#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "weft/text/jinja/collections.h"
#include "weft/text/jinja/strings.h"
#include "weft/text/unicode/utf8.h"

namespace weft::text::jinja {
namespace {

Value default_filter(Context&, const Value& input, const Args& args) {
  const auto arg = bind("default", args, {"default_value", "boolean"});
  const bool by_truth = arg[1] != nullptr && is_true(*arg[1]);
  if (!input.is_undefined() && !(by_truth && !is_true(input))) return input;
  return arg[0] != nullptr ? *arg[0] : Value::text("");
}

Value length_filter(Context&, const Value& input, const Args& args) {
  bind("length", args, {});
  size_t size = 0;
  if (const Text* text = input.as_text()) {
    size = utf8_length(text->bytes());
  } else if (const List* list = input.as_list()) {
    size = list->items.size();
  } else if (const Dict* dict = input.as_dict()) {
    size = dict->entries.size();
  } else if (!input.is_undefined()) {
    fault("object of type '", type_name(input), "' has no length");
  }
  return Value::integer(static_cast<int64_t>(size));
}

Value tojson_filter(Context& context, const Value& input, const Args& args) {
  const auto arg = bind("tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ascii = arg[0] != nullptr && is_true(*arg[0]);
  style.sort_keys = arg[3] != nullptr && is_true(*arg[3]);
  if (arg[1] != nullptr && !arg[1]->is_none()) {
    const int64_t indent = integer_of(*arg[1], "tojson's indent");
    if (indent < 0 || indent > 80) fault("tojson's indent: expected 0 to 80, got ", indent);
    style.indent = static_cast<int>(indent);
    style.item_separator.pop_back();  // the space; a line end follows
  }
  if (arg[2] != nullptr && !arg[2]->is_none()) {
    const std::vector<Value> separators = to_items(*arg[2]);
    if (separators.size() != 2) fault("tojson's separators: expected two strings");
    style.item_separator = string_of(separators[0], "tojson's separators");
    style.key_separator = string_of(separators[1], "tojson's separators");
  }
  return Value::text(Text(dump_value(context, input, style), any_typed(input)));
}

Value string_filter(Context&, const Value& input, const Args& args) {
  bind("string", args, {});
  return Value::text(to_text(input));
}

// What escaping would change is only markup, which a prompt is not.
Value safe_filter(Context&, const Value& input, const Args& args) {
  bind("safe", args, {});
  return Value::text(to_text(input));
}

Value escape_filter(Context& context, const Value& input, const Args& args) {
  bind("escape", args, {});
  const Text text = to_text(input);
  std::string out;
  for (const char c : text.bytes()) {
    constexpr std::string_view kPlain = "&<>'\"";
    constexpr std::string_view kEscaped[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    const size_t known = kPlain.find(c);
    out += known == kPlain.npos ? std::string_view(&c, 1) : kEscaped[known];
  }
  charge_text(context, out.size());
  return Value::text(Text(std::move(out), text.any_typed()));
}

std::string trimmed(const Text& text) {
  std::string digits = strip(text, Ends::kBoth).bytes();
  std::erase(digits, '_');
  return digits.starts_with('+') ? digits.substr(1) : digits;
}

std::optional<double> parse_double(const Text& text) {
  const std::string digits = trimmed(text);
  double number = 0;
  const char* end = digits.data() + digits.size();
  const auto result = std::from_chars(digits.data(), end, number);
  if (digits.empty() || result.ec != std::errc() || result.ptr != end) return std::nullopt;
  return number;
}

std::optional<int64_t> parse_integer(const Text& text, int base) {
  const std::string digits = trimmed(text);
  int64_t number = 0;
  const char* end = digits.data() + digits.size();
  const auto result = std::from_chars(digits.data(), end, number, base);
  if (digits.empty() || result.ec != std::errc() || result.ptr != end) return std::nullopt;
  return number;
}

std::optional<int64_t> truncate_double(double number) {
  if (!(std::abs(number) < 9.2e18)) return std::nullopt;
  return static_cast<int64_t>(number);
}

Value int_filter(Context&, const Value& input, const Args& args) {
  const auto arg = bind("int", args, {"default", "base"});
  const int64_t base = arg[1] == nullptr ? 10 : integer_of(*arg[1], "int's base");
  if (base < 2 || base > 36) fault("int's base: expected 2 to 36, got ", base);
  const Value fallback = arg[0] == nullptr ? Value::integer(0) : *arg[0];
  if (input.is_integer()) return Value::integer(input.as_integer());
  std::optional<int64_t> number;
  if (const Text* text = input.as_text()) {
    number = parse_integer(*text, static_cast<int>(base));
    const auto whole = number ? std::nullopt : parse_double(*text);
    if (whole) number = truncate_double(*whole);
  } else if (input.is_number()) {
    number = truncate_double(input.as_double());
  }
  return number ? Value::integer(*number) : fallback;
}

Value float_filter(Context&, const Value& input, const Args& args) {
  const auto arg = bind("float", args, {"default"});
  if (input.is_number()) return Value(input.as_double());
  const Text* text = input.as_text();
  const auto number = text == nullptr ? std::nullopt : parse_double(*text);
  if (number) return Value(*number);
  return arg[0] == nullptr ? Value(0.0) : *arg[0];
}

Value abs_filter(Context&, const Value& input, const Args& args) {
  bind("abs", args, {});
  if (!input.is_number()) fault("bad operand type for abs(): '", type_name(input), "'");
  if (!input.is_integer()) return Value(std::abs(input.as_double()));
  const int64_t number = input.as_integer();
  if (number == INT64_MIN) fault("a whole number does not fit 64 bits");
  return Value::integer(number < 0 ? -number : number);
}

double round_to(double number, int64_t precision, const std::string& method) {
  if (method == "common" && precision >= 0) {
    std::array<char, 400> text{};
    std::snprintf(text.data(), text.size(), "%.*f", static_cast<int>(precision), number);
    return std::strtod(text.data(), nullptr);
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  if (method == "ceil") return std::ceil(number * scale) / scale;
  if (method == "floor") return std::floor(number * scale) / scale;
  return std::nearbyint(number * scale) / scale;
}

Value round_filter(Context&, const Value& input, const Args& args) {
  const auto arg = bind("round", args, {"precision", "method"});
  if (!input.is_number()) fault("round: expected a number, got ", type_name(input));
  const int64_t precision = arg[0] == nullptr ? 0 : integer_of(*arg[0], "round's precision");
  if (precision < -300 || precision > 60) {
    fault("round's precision: expected -300 to 60, got ", precision);
  }
  const std::string method = arg[1] == nullptr ? "common" : string_of(*arg[1], "round's method");
  if (method != "common" && method != "ceil" && method != "floor") {
    fault("round's method must be common, ceil or floor");
  }
  if (input.is_integer() && method == "common" && precision >= 0) return input;
  return Value(round_to(input.as_double(), precision, method));
}

Value attr_filter(Context& context, const Value& input, const Args& args) {
  const auto arg = bind("attr", args, {"name"});
  if (arg[0] == nullptr) fault("attr needs a name");
  context.charge(1);
  return get_attribute(input, string_of(*arg[0], "attr's name"));
}

constexpr Named<Filter> kValueFilters[] = {
    {"abs", abs_filter},       {"attr", attr_filter},       {"count", length_filter},
    {"d", default_filter},     {"default", default_filter}, {"e", escape_filter},
    {"escape", escape_filter}, {"float", float_filter},     {"int", int_filter},
    {"length", length_filter}, {"round", round_filter},     {"safe", safe_filter},
    {"string", string_filter}, {"tojson", tojson_filter},
};

}  // namespace

Filter find_filter(std::string_view name) {
  if (const Filter filter = find_named<Filter>(kValueFilters, name)) return filter;
  if (const Filter filter = find_string_filter(name)) return filter;
  return find_collection_filter(name);
}

}  // namespace weft::text::jinja
