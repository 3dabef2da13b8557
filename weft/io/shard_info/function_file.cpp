#include "weft/io/shard_info/function_file.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "weft/core/error.h"
#include "weft/core/files/file.h"
#include "weft/core/json.h"
#include "weft/io/shard_info/shard_info_json.h"

namespace weft::io {

using core::check;
using core::FormatError;
using core::Json;
using core::quote;

void parse_functions(std::string_view text, const std::string& where, FunctionTable& table) {
  const Json root = core::parse_json(text, where);
  check<FormatError>(root.is_object(), where, ": expected an object, got ", root.type_name());
  for (const auto& [name, value] : root.items()) {
    const std::string at = core::join(where, ": function ", quote(name));
    check<FormatError>(value.is_array() && !value.empty() && value[0].is_string(), at,
                       ": expected [\"FUNCTION\", ARGUMENT…], got ", value.type_name());
    std::vector<Argument> arguments;
    for (size_t i = 1; i < value.size(); ++i) {
      arguments.push_back(read_argument(value[i], core::join(at, " argument ", i)));
    }
    table.add_alias(name, value[0].get<std::string>(), std::move(arguments), at);
  }
}

void read_functions(const std::string& path, FunctionTable& table) {
  parse_functions(core::read_text_file(path, core::JsonLimits{}.max_bytes), path, table);
}

}  // namespace weft::io
