#pragma once

#include <string>
#include <vector>

#include "weft/text/chat_template.h"

namespace weft::cli {

/// Writes {"messages": [{"role": …, "content": …}, …]}, as OpenAI's API takes them. Throws
/// ConfigError if the file is there already, unless `force` is set; IoError.
void save_talk(const std::string& path, const std::vector<text::Message>& messages, bool force);

/// Reads it, or the list of messages alone. Throws FormatError, IoError.
std::vector<text::Message> load_talk(const std::string& path);

}  // namespace weft::cli
