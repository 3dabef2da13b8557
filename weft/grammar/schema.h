#pragma once

#include <string>
#include <vector>

namespace weft::grammar {

/// A regular expression of a schema, for a text of JSON or a member's name.
struct SchemaPattern {
  /// Where it stands, which begins messages.
  std::string where;
  std::string text;
};

/// Throws ConfigError for a JSON schema that is no JSON, is nested too deep, or has what would be
/// left out: keywords that constrain but are not supported, and keywords beside one that takes the
/// schema for itself (`$ref`, `const`, `enum`, `anyOf`, `oneOf`, `allOf`), or without a
/// `type`. Annotations pass, and so do formats: they are hints. Returns its patterns, of which
/// only who compiles them knows whether they can be kept to.
std::vector<SchemaPattern> check_schema(const std::string& text);

/// The same of each schema in a structural tag, whose regular expressions and grammars are checked
/// as those of source_text.h are.
std::vector<SchemaPattern> check_tag(const std::string& text);

}  // namespace weft::grammar
