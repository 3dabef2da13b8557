#pragma once

#include <string_view>

#include "weft/text/jinja/callable.h"

namespace weft::text::jinja {

/// Filters on lists and dicts: map, select, sort, join …; nullptr for an unknown name.
Filter find_collection_filter(std::string_view name);
/// Methods of lists, dicts and loops that change nothing; nullptr for an unknown name.
Callable::Method find_collection_method(const Value& self, std::string_view name);

}  // namespace weft::text::jinja
