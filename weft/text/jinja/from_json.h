#pragma once

#include <string>

#include "weft/text/jinja/value.h"

namespace weft::text::jinja {

/// The value of a JSON text, members in their order; its texts count as typed by a user. Throws
/// FormatError as core::parse_json, and Fault where it is nested too deep or too large.
Value from_json(const std::string& text, const std::string& where);

}  // namespace weft::text::jinja
