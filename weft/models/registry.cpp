#include "weft/models/registry.h"

#include <array>
#include <vector>

#include "weft/core/error.h"
#include "weft/models/llama/llama.h"
#include "weft/models/llama/llama_rules.h"

namespace weft::models {
namespace {

const std::array<Family, 1>& families() {
  static const std::array<Family, 1> table = {{
      {"llama", llama_rules, make_llama},
  }};
  return table;
}

}  // namespace

const Family& find_family(const std::string& name) {
  std::vector<std::string> known;
  for (const Family& family : families()) {
    if (family.name == name) return family;
    known.push_back(family.name);
  }
  core::fail<core::ConfigError>("models: unknown family '", name, "', expected one of ",
                                core::list_text(known));
}

}  // namespace weft::models
