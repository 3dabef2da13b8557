#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace weft::grammar {

/// Throws ConfigError for the branches of a `oneOf` of which two could hold at once, for all that
/// is plain: types, values by `const` and `enum`, and members that one of two objects requires and
/// whose schemas are apart or which the other does not allow. `root` is what `$ref` goes by;
/// `where` begins the message.
void check_one_of(const nlohmann::json& branches, const nlohmann::json& root,
                  const std::string& where);

}  // namespace weft::grammar
