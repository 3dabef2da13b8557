#pragma once

#include <string>

namespace weft::grammar {

/// Throws ConfigError for a regular expression with groups nested too deep, counts that are too
/// large, or what xgrammar reads wrongly: control characters by \c, \x with other than two digits,
/// \U beyond the last character, and groups with names that are not ASCII letters.
void check_regex(const std::string& text);

/// Throws ConfigError for a grammar in GBNF with groups nested too deep, counts that are too large,
/// or what xgrammar reads wrongly: \x with other than two digits, \U beyond the last character; or
/// what is no GBNF and xgrammar takes for more: a NUL, attributes of rules, lookaheads and rules
/// of the names of its own functions.
void check_gbnf(const std::string& text);

}  // namespace weft::grammar
