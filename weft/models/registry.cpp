#include "weft/models/registry.h"

#include "weft/core/error.h"
#include "weft/models/config/families.h"
#include "weft/models/decoder/decoder.h"
#include "weft/models/decoder/decoder_rules.h"

namespace weft::models {

const Family& find_family(const std::string& name) {
  static const Family decoder = {decoder_rules, make_decoder};
  core::check<core::ConfigError>(find_family_info(name) != nullptr, "models: unknown family '",
                                 name, "', expected one of ", core::list_text(family_names()));
  return decoder;
}

}  // namespace weft::models
