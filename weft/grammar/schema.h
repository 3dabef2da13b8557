#pragma once

#include <string>

namespace weft::grammar {

/// Throws ConfigError for a JSON schema that is no JSON, is nested too deep, or has what would be
/// left out: keywords that constrain but are not supported, and keywords beside one that takes the
/// schema for itself (`$ref`, `const`, `enum`, `anyOf`, `oneOf`, `allOf`), or without a
/// `type`. Annotations pass, and so do formats: they are hints.
void check_schema(const std::string& text);

}  // namespace weft::grammar
