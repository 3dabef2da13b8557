// The strict JSON that configurations and indices are read with.
#include <nlohmann/json.hpp>

#include "tests/fuzz/fuzz.h"
#include "weft/core/json.h"

namespace {

// Every exact conversion of the first values.
void convert(const weft::core::Json& value, int& left) {
  using namespace weft;
  if (--left < 0) return;
  const std::string where = "value";
  testing::run_input([&] { core::to_int64(value, where); });
  testing::run_input([&] { core::to_uint64(value, where); });
  testing::run_input([&] { core::to_double(value, where); });
  testing::run_input([&] { core::to_bool(value, where); });
  testing::run_input([&] { core::to_string(value, where); });
  testing::run_input([&] { core::require(value, "a", where); });
  if (!value.is_structured()) return;
  for (const core::Json& member : value) convert(member, left);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weft;
  testing::run_input([&] {
    const core::Json value =
        core::parse_json({reinterpret_cast<const char*>(data), size}, "config.json");
    int left = 200;
    convert(value, left);
    const std::string text = core::dump_json(value);
    testing::expect(core::dump_json(core::parse_json(text, "config.json")) == text,
                    "JSON reads back as it was written");
  });
  return 0;
}
