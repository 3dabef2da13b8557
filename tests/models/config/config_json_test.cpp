#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/core/error_text.h"
#include "tests/models/family_files.h"
#include "tests/models/model_files.h"
#include "weft/models/config/config.h"
#include "weft/models/config/sources.h"

namespace weft::models {
namespace {

using test::model_data;
using testing::error_text;

ModelConfig family_config(const std::string& name) {
  return config_from_folder(*io::TensorFile::open(model_data("families/" + name)));
}

TEST(ConfigJson, SaysEveryFamilysConfiguration) {
  for (const std::string& name : test::kFamilyCheckpoints) {
    const ModelConfig config = family_config(name);
    const nlohmann::json object = config_json(config);
    EXPECT_EQ(config_from_json(object, name), config) << name << object.dump();
  }
}

TEST(ConfigJson, SaysOptionsThatFilesPutOtherwise) {
  ModelConfig phi3 = family_config("phi3");
  for (const auto& [head_dim, rope_dims] : {std::pair<int64_t, int64_t>{98, 72}, {96, 94}}) {
    phi3.head_dim = head_dim;
    phi3.rope_dims = rope_dims;
    EXPECT_EQ(config_from_json(config_json(phi3), "phi3").rope_dims, rope_dims);
  }
  ModelConfig granite = family_config("granite");
  for (const double divisor : {3.0, 13.0, 6.1, 49.0}) {
    granite.logits_scale = 1 / divisor;
    EXPECT_EQ(config_from_json(config_json(granite), "granite"), granite) << divisor;
  }
  granite.attention_scale = 0;
  EXPECT_EQ(config_json(granite).at("attention_multiplier"), 0.5) << "heads of 4 features";
}

TEST(ConfigJson, NamesTheClassOfTransformers) {
  EXPECT_EQ(config_json(family_config("mixtral")).at("architectures").at(0), "MixtralForCausalLM");
  EXPECT_EQ(config_json(family_config("qwen2_window")).at("layer_types"),
            (nlohmann::json{"full_attention", "sliding_attention"}));
}

TEST(ConfigJson, RefusesWhatTheFamilysFileCanNotSay) {
  ModelConfig config = family_config("llama");
  config.head_norms = HeadNorms::kEachHead;
  EXPECT_EQ(error_text([&] { config_json(config); }),
            "ConfigError: models.config_json: the family 'llama' has no config.json for these "
            "biases, norms, windows, experts or this rope; choose another family or change them");
  config.family = "gpt";
  EXPECT_EQ(error_text([&] { config_json(config); }),
            "ConfigError: models.config_json: no config.json can be made for the family 'gpt'");
}

}  // namespace
}  // namespace weft::models
