#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weft::serve {

/// The text of a member, of a member of it, and so on, in a JSON object's text, as the client wrote
/// it: in a schema the order of the members is the order in which they are answered, which parsed
/// objects lose. `object` is known to be JSON. None where there is no such member.
std::optional<std::string> member_text(std::string_view object,
                                       const std::vector<std::string>& path);
/// The texts of a list's elements; none if `list` is no list.
std::vector<std::string> element_texts(std::string_view list);

}  // namespace weft::serve
