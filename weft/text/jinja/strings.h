#pragma once

#include <string_view>

#include "weft/text/jinja/callable.h"

namespace weft::text::jinja {

/// Filters on strings: trim, upper, replace, indent …; nullptr for an unknown name.
Filter find_string_filter(std::string_view name);
/// Methods of Python's `str` that leave it as it is and are safe; nullptr for an unknown name.
Callable::Method find_string_method(std::string_view name);

/// `text` with the first `count` places of `from` replaced, all if `count` is negative.
Text replace_all(Context& context, const Text& text, const Text& from, const Text& to,
                 int64_t count);
/// The lines of a text without their ends, as `str.splitlines`.
std::vector<Text> split_lines(const Text& text);
/// `text` between spaces to `width` characters. `left_share` of the spaces goes to the left: 0 for
/// none, 1 for half, 2 for all.
Text pad(Context& context, const Text& text, int64_t width, int left_share);

}  // namespace weft::text::jinja
