#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "weft/serve/http/server.h"

namespace weft::serve {

/// The chat page, which the program holds (page/files): what is at that path, for GET. None for a
/// path that is not the page's. Its header fields let it load nothing from elsewhere, run no script
/// and no style but its own files, and stand in no other page's frame (Content Security Policy
/// Level 3).
std::optional<HttpAnswer> page_answer(std::string_view path);

}  // namespace weft::serve
