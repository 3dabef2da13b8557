#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace weft::grammar {

/// Throws ConfigError for a schema of the type object whose members could break it: names that are
/// required and not among `properties`, and ways to name members beside one another, of which
/// xgrammar would keep to one. `where` begins the message.
void check_object(const nlohmann::json& schema, const std::string& where);

}  // namespace weft::grammar
