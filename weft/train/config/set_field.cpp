#include <algorithm>
#include <charconv>
#include <cmath>

#include "weft/core/did_you_mean.h"
#include "weft/core/error.h"
#include "weft/train/config/config_fields.h"

namespace weft::train {
namespace {

using core::ConfigError;

std::string number_text(double value) {
  if (std::abs(value) < 1e15 && value == std::floor(value)) {
    return std::to_string(static_cast<int64_t>(value));
  }
  return core::join(value);
}

std::string range_text(const FieldLimits& limits) {
  if (limits.is_above_low) return "above " + number_text(limits.low);
  return "from " + number_text(limits.low) + " to " + number_text(limits.high);
}

std::string choices_text(const std::vector<std::string>& choices) {
  std::string text;
  for (size_t i = 0; i < choices.size(); ++i) {
    if (i > 0) text += i + 1 == choices.size() ? " or " : ", ";
    text += choices[i];
  }
  return text;
}

template <class T>
bool is_kind(const ConfigField& field) {
  return std::holds_alternative<T*>(field.value);
}

[[noreturn]] void fail_value(const ConfigField& field, const std::string& got,
                             const std::string& where) {
  core::fail<ConfigError>(where, ": expected ", field.expected(), ", got ", got);
}

// The member, if it is of this type; otherwise the message says which it is.
template <class T>
T& member(const ConfigField& field, const std::string& got, const std::string& where) {
  if (!is_kind<T>(field)) fail_value(field, got, where);
  return *std::get<T*>(field.value);
}

bool is_within(const FieldLimits& limits, double value) {
  const bool is_low = limits.is_above_low ? value <= limits.low : value < limits.low;
  return std::isfinite(value) && !is_low && value <= limits.high;
}

void check_choice(const ConfigField& field, const std::string& value, const std::string& got,
                  const std::string& where) {
  const auto& choices = field.choices;
  if (choices.empty() || std::find(choices.begin(), choices.end(), value) != choices.end()) return;
  fail_value(field, got + core::did_you_mean(value, choices), where);
}

// The whole text as a number, or false.
template <class T>
bool parse(const std::string& text, T& value) {
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  return result.ec == std::errc() && result.ptr == text.data() + text.size();
}

std::vector<std::string> split_commas(const std::string& text) {
  std::vector<std::string> parts;
  size_t start = 0;
  while (start < text.size()) {
    const size_t end = std::min(text.find(',', start), text.size());
    parts.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return parts;
}

}  // namespace

std::string ConfigField::expected() const {
  if (!choices.empty()) return choices_text(choices);
  if (is_kind<bool>(*this)) return "true or false";
  if (is_kind<int64_t>(*this)) return "a whole number " + range_text(limits);
  if (is_kind<double>(*this)) return "a number " + range_text(limits);
  if (is_kind<std::string>(*this)) return "a text in quotes";
  if (is_kind<std::vector<int64_t>>(*this)) return "a list of whole numbers " + range_text(limits);
  if (is_kind<std::vector<double>>(*this)) return "a list of numbers " + range_text(limits);
  return "a list of texts, e.g. [\"a\", \"b\"]";
}

void set_bool(const ConfigField& field, bool value, const std::string& where) {
  member<bool>(field, value ? "true" : "false", where) = value;
}

void set_whole(const ConfigField& field, int64_t value, const std::string& where) {
  if (is_kind<double>(field)) return set_number(field, static_cast<double>(value), where);
  const std::string got = std::to_string(value);
  auto& target = member<int64_t>(field, got, where);
  if (!is_within(field.limits, static_cast<double>(value))) fail_value(field, got, where);
  check_choice(field, got, got, where);
  target = value;
}

void set_number(const ConfigField& field, double value, const std::string& where) {
  const std::string got = core::join(value);
  auto& target = member<double>(field, got, where);
  if (!is_within(field.limits, value)) fail_value(field, got, where);
  target = value;
}

void set_text(const ConfigField& field, const std::string& value, const std::string& where) {
  const std::string got = core::quote(value);
  auto& target = member<std::string>(field, "the text " + got, where);
  check_choice(field, value, got, where);
  target = value;
}

void set_numbers(const ConfigField& field, const std::vector<double>& values,
                 const std::string& where) {
  const std::string got = core::list_text(values);
  const bool is_whole = is_kind<std::vector<int64_t>>(field);
  for (const double value : values) {
    const bool fits = is_within(field.limits, value) && (!is_whole || value == std::floor(value));
    if (field.is_list_of_numbers() && !fits) fail_value(field, got, where);
  }
  if (is_whole) {
    std::get<std::vector<int64_t>*>(field.value)->assign(values.begin(), values.end());
  } else {
    member<std::vector<double>>(field, got, where) = values;
  }
}

void set_texts(const ConfigField& field, const std::vector<std::string>& values,
               const std::string& where) {
  member<std::vector<std::string>>(field, "a list of texts", where) = values;
}

void set_from_text(const ConfigField& field, const std::string& text, const std::string& where) {
  const auto refuse = [&] { fail_value(field, core::quote(text), where); };
  if (is_kind<bool>(field)) {
    if (text != "true" && text != "false" && text != "1" && text != "0") refuse();
    return set_bool(field, text == "true" || text == "1", where);
  }
  if (is_kind<int64_t>(field)) {
    int64_t value = 0;
    if (!parse(text, value)) refuse();
    return set_whole(field, value, where);
  }
  if (is_kind<double>(field)) {
    double value = 0;
    if (!parse(text, value)) refuse();
    return set_number(field, value, where);
  }
  if (is_kind<std::string>(field)) return set_text(field, text, where);
  const std::vector<std::string> parts = split_commas(text);
  if (is_kind<std::vector<std::string>>(field)) return set_texts(field, parts, where);
  std::vector<double> values(parts.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!parse(parts[i], values[i])) refuse();
  }
  set_numbers(field, values, where);
}

}  // namespace weft::train
