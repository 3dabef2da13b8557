#include "weft/train/config/config_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/train/config/config_files.h"
#include "weft/train/config/config_fields.h"

namespace weft::train {
namespace {

using weft::testing::error_text;

TEST(ConfigJson, GivesBackEveryValue) {
  TrainConfig config;
  int64_t next = 1;
  // Every value differs from its default.
  for (const ConfigField& field : config_fields(config)) {
    if (auto* flag = std::get_if<bool*>(&field.value)) **flag = !**flag;
    if (auto* whole = std::get_if<int64_t*>(&field.value)) **whole += ++next;
    if (auto* number = std::get_if<double*>(&field.value))
      **number = 1.0 / static_cast<double>(++next);
    if (auto* text = std::get_if<std::string*>(&field.value)) {
      **text = field.choices.empty() ? "a \"text\"" : field.choices.back();
    }
    if (auto* wholes = std::get_if<std::vector<int64_t>*>(&field.value)) **wholes = {2, 5};
    if (auto* numbers = std::get_if<std::vector<double>*>(&field.value)) **numbers = {0.1, 0.7};
    if (auto* texts = std::get_if<std::vector<std::string>*>(&field.value)) **texts = {"x", "y"};
  }
  config.lora.quantize_bits = 4;
  const core::Json json = config_to_json(config);
  const core::Json read = core::parse_json(core::dump_json(json), "checkpoint");
  EXPECT_EQ(config_to_json(config_from_json(read, "checkpoint")), json);
  EXPECT_NE(config_to_json(TrainConfig()), json);
  EXPECT_EQ(json["checkpoint"]["async"], true);
}

TEST(ConfigJson, HoldsEveryFieldOnce) {
  TrainConfig config;
  const core::Json json = config_to_json(config);
  size_t count = 0;
  for (const auto& [section, keys] : json.items()) count += keys.size();
  EXPECT_EQ(count, config_fields(config).size());
}

TEST(ConfigJson, RefusesWhatItDoesNotKnow) {
  EXPECT_EQ(error_text([] {
              config_from_json({{"mesh", {{"tpp", 2}}}}, "state.json");
            }),
            "FormatError: state.json: 'mesh.tpp': unknown key; the file is of another version of "
            "weft");
  EXPECT_EQ(error_text([] {
              config_from_json({{"mesh", {{"tp", "x"}}}}, "state.json");
            }),
            "ConfigError: state.json: mesh.tp: expected a whole number from 1 to 1000000, got the "
            "text 'x'");
  EXPECT_EQ(error_text([] { config_from_json(core::Json::array(), "state.json"); }),
            "FormatError: state.json: expected an object of sections, got array");
}

}  // namespace
}  // namespace weft::train
