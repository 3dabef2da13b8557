#include "weft/models/registry.h"

#include <array>
#include <vector>

#include "weft/core/error.h"
#include "weft/models/decoder/decoder.h"
#include "weft/models/decoder/decoder_rules.h"

namespace weft::models {
namespace {

const std::array<Family, 7>& families() {
  static const std::array<Family, 7> table = {{
      {"llama", decoder_rules, make_decoder},
      {"mistral", decoder_rules, make_decoder},
      {"mixtral", decoder_rules, make_decoder},
      {"qwen2", decoder_rules, make_decoder},
      {"qwen3", decoder_rules, make_decoder},
      {"qwen2_moe", decoder_rules, make_decoder},
      {"qwen3_moe", decoder_rules, make_decoder},
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
