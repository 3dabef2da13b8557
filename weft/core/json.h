#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace weft::core {

using Json = nlohmann::json;

/// What strict parsing refuses beyond the JSON grammar.
struct JsonLimits {
  size_t max_bytes = 100'000'000;
  int max_depth = 64;
};

/// Parses exactly one JSON value (RFC 8259, UTF-8). Refuses duplicate keys, nesting deeper than
/// the limit, a byte order mark, numbers beyond a double, and anything after the value. An integer
/// beyond 64 bits becomes a double, as tokenizer_config.json's 10^30 does; to_int64 refuses it.
/// `where` begins the message, e.g. a path. Throws FormatError with the byte offset.
Json parse_json(std::string_view text, const std::string& where, const JsonLimits& limits = {});

/// For parsers of events: refuses what the JSON library would let pass, a NUL byte (taken for the
/// end) and a byte order mark (skipped). Throws FormatError as parse_json does.
void check_json_bytes(std::string_view text, const std::string& where);
/// The JSON library's message without its prefix, on one line of bounded length.
std::string json_error_text(std::string_view message);

/// The member `key` of an object, or nullptr. Throws FormatError if `object` is no object.
const Json* find(const Json& object, const std::string& key, const std::string& where);
/// The member `key`. Throws FormatError if it is missing.
const Json& require(const Json& object, const std::string& key, const std::string& where);

/// Exact conversions: no rounding, no wrap, no bool as number. Throw FormatError naming `where`.
int64_t to_int64(const Json& value, const std::string& where);
uint64_t to_uint64(const Json& value, const std::string& where);
double to_double(const Json& value, const std::string& where);
bool to_bool(const Json& value, const std::string& where);
std::string to_string(const Json& value, const std::string& where);

/// One line of JSON; invalid UTF-8 is replaced by U+FFFD rather than refused.
std::string dump_json(const Json& value);

}  // namespace weft::core
