#include "weft/core/json.h"

#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "weft/core/error.h"

namespace weft::core {
namespace {

// Sees each event of the parser, so depth and duplicates are refused before a value is built.
class StrictEvents {
 public:
  StrictEvents(const std::string& where, int max_depth) : where_(where), max_depth_(max_depth) {}

  bool operator()(int depth, Json::parse_event_t event, const Json& value) {
    using Event = Json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) {
      check<FormatError>(depth < max_depth_, where_, ": JSON nested deeper than ", max_depth_,
                         " levels; flatten it");
    }
    if (event == Event::object_start) keys_.emplace_back();
    if (event == Event::object_end) keys_.pop_back();
    if (event == Event::key) {
      const auto& key = value.get_ref<const std::string&>();
      check<FormatError>(keys_.back().insert(key).second, where_, ": duplicate JSON key ",
                         quote(key), "; each key may stand once");
    }
    return true;
  }

 private:
  const std::string& where_;
  int max_depth_;
  std::vector<std::set<std::string>> keys_;
};

[[noreturn]] void fail_type(const std::string& where, const char* expected, const Json& value) {
  if (value.is_number()) fail<FormatError>(where, ": expected ", expected, ", got ", value.dump());
  fail<FormatError>(where, ": expected ", expected, ", got ", value.type_name());
}

}  // namespace

std::string json_error_text(std::string_view message) {
  // The library's message begins with its own name and position, and ends with what it read last,
  // which can be as long as the file.
  constexpr size_t kMaxBytes = 200;
  for (const std::string_view lead : {"] ", "parse error", ": "}) {
    const size_t at = message.find(lead);
    if (at != std::string_view::npos) message.remove_prefix(at + lead.size());
  }
  std::string text;
  for (const char c : message.substr(0, kMaxBytes)) text += (c >= 0x20 && c < 0x7f) ? c : '?';
  return text + (message.size() > kMaxBytes ? "…" : "");
}

void check_json_bytes(std::string_view text, const std::string& where) {
  // The parser would take a NUL for the end of the text, and skip a byte order mark.
  const size_t nul = text.find('\0');
  check<FormatError>(nul == std::string_view::npos, where, ": not valid JSON at byte ", nul,
                     ": a NUL byte");
  check<FormatError>(!text.starts_with("\xEF\xBB\xBF"), where,
                     ": not valid JSON at byte 0: a byte order mark; save the file without it");
}

Json parse_json(std::string_view text, const std::string& where, const JsonLimits& limits) {
  check<FormatError>(text.size() <= limits.max_bytes, where, ": JSON of ", text.size(),
                     " bytes, expected at most ", limits.max_bytes);
  check_json_bytes(text, where);
  StrictEvents events(where, limits.max_depth);
  try {
    return Json::parse(text.begin(), text.end(), std::ref(events));
  } catch (const Json::parse_error& error) {
    fail<FormatError>(where, ": not valid JSON at byte ", error.byte > 0 ? error.byte - 1 : 0, ": ",
                      json_error_text(error.what()));
  } catch (const Json::exception& error) {
    fail<FormatError>(where, ": not valid JSON: ", json_error_text(error.what()));
  }
}

const Json* find(const Json& object, const std::string& key, const std::string& where) {
  if (!object.is_object()) fail_type(where, "an object", object);
  const auto it = object.find(key);
  return it == object.end() ? nullptr : &*it;
}

const Json& require(const Json& object, const std::string& key, const std::string& where) {
  const Json* value = find(object, key, where);
  check<FormatError>(value != nullptr, where, ": missing key \"", key, "\"");
  return *value;
}

int64_t to_int64(const Json& value, const std::string& where) {
  if (!value.is_number_integer()) fail_type(where, "an integer", value);
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    check<FormatError>(number <= static_cast<uint64_t>(INT64_MAX), where, ": ", number,
                       " is too large for a signed integer");
    return static_cast<int64_t>(number);
  }
  return value.get<int64_t>();
}

uint64_t to_uint64(const Json& value, const std::string& where) {
  if (!value.is_number_integer() || (!value.is_number_unsigned() && value.get<int64_t>() < 0)) {
    fail_type(where, "a non-negative integer", value);
  }
  return value.get<uint64_t>();
}

double to_double(const Json& value, const std::string& where) {
  if (!value.is_number()) fail_type(where, "a number", value);
  const double number = value.get<double>();
  check<FormatError>(std::isfinite(number), where, ": expected a finite number, got ", number);
  return number;
}

bool to_bool(const Json& value, const std::string& where) {
  if (!value.is_boolean()) fail_type(where, "true or false", value);
  return value.get<bool>();
}

std::string to_string(const Json& value, const std::string& where) {
  if (!value.is_string()) fail_type(where, "a string", value);
  return value.get<std::string>();
}

std::string dump_json(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace weft::core
