#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace weft::core {

/// `text` on one line and without what a terminal obeys: control characters (line breaks and ESC
/// among them) and bytes that are no UTF-8 become `\xNN`. All else stays. For what is shown to
/// people and may come from a file's name, a file's bytes, another process or another host.
std::string printable(std::string_view text);

/// The same for a text of lines: line breaks stay.
std::string printable_lines(std::string_view text);

/// `text`, which is printable, as it is, or if it has more than kMostShown bytes its beginning and
/// its end with the number of bytes that are left out between them: names of files and values of
/// flags may have any length, and what was wrong stands behind them.
std::string shortened(std::string_view text);

inline constexpr size_t kMostShown = 3000;

}  // namespace weft::core
