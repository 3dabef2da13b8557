#pragma once

#include <string>
#include <string_view>

namespace weft::core {

/// `text` on one line and without what a terminal obeys: control characters (line breaks and ESC
/// among them) and bytes that are no UTF-8 become `\xNN`. All else stays. For what is shown to
/// people and may come from a file's name, a file's bytes, another process or another host.
std::string printable(std::string_view text);

/// The same for a text of lines: line breaks stay.
std::string printable_lines(std::string_view text);

}  // namespace weft::core
