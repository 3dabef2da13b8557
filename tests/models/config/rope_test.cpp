// Rope as files of both kinds say it.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/core/error_text.h"
#include "tests/core/temp_dir.h"
#include "tests/models/config/gguf_keys.h"
#include "tests/models/family_folder.h"
#include "weft/models/config/config.h"
#include "weft/models/config/sources.h"
#include "weft/models/convert/folder_config.h"

namespace weft::models {
namespace {

using nlohmann::json;
using test::integer;
using test::Keys;
using test::real;
using test::text;
using testing::error_text;
using testing::replaced;
using testing::TempDir;

// A GGUF of some architecture, with its further keys behind "<architecture>.".
class GgufModel {
 public:
  explicit GgufModel(const std::string& architecture) : architecture_(architecture) {
    keys_["general.architecture"] = text(architecture);
    for (const auto& [key, value] : {std::pair{"embedding_length", 64},
                                     {"block_count", 4},
                                     {"attention.head_count", 4},
                                     {"feed_forward_length", 128},
                                     {"context_length", 8192},
                                     {"vocab_size", 61}}) {
      set(key, integer(static_cast<uint32_t>(value)));
    }
    set("attention.layer_norm_rms_epsilon", real(1e-5F));
  }
  GgufModel& set(const std::string& key, const test::Value& value) {
    keys_[architecture_ + "." + key] = value;
    return *this;
  }
  std::shared_ptr<const io::TensorFile> file() const {
    return test::write_gguf(dir_, keys_, {{"x", {1}, 0, testing::raw(1.0F)}});
  }
  ModelConfig config() const { return read_config(*file()); }
  std::string error() const {
    return replaced(error_text([&] { config(); }), dir_.at("model.gguf"), "FILE");
  }
  std::string folder_error() const {
    return replaced(error_text([&] { folder_config(*file()); }), dir_.at("model.gguf"), "FILE");
  }

 private:
  TempDir dir_;
  std::string architecture_;
  Keys keys_;
};

test::Value sections(uint32_t time, uint32_t height) {
  const std::string bytes =
      testing::raw(time) + testing::raw(height) + testing::raw(height) + testing::raw(0U);
  return {io::GgufType::kArray, testing::gguf_array(io::GgufType::kU32, 4, bytes)};
}

// GLM-4.1V's rows of q and k are in another order than those of GLM-4, as the sections say.
TEST(Rope, OfAGgufWithSectionsTurnsHalves) {
  GgufModel glm4("glm4");
  EXPECT_TRUE(glm4.config().turns_neighbours);
  EXPECT_TRUE(glm4.set("rope.dimension_sections", sections(8, 0)).config().turns_neighbours);
  EXPECT_FALSE(glm4.set("rope.dimension_sections", sections(2, 3)).config().turns_neighbours);
  EXPECT_EQ(glm4.folder_error(),
            "ConfigError: models.config_json: the family 'glm4' has no config.json for these "
            "biases, norms, windows, experts or this rope; choose another family or change them");
}

// As llama.cpp reads it; the first converters had another key.
TEST(Rope, OfAGgufWithAFactorAndNoTypeIsLinear) {
  for (const char* key : {"rope.scaling.factor", "rope.scale_linear"}) {
    const auto scaling = [&](float factor) {
      return GgufModel("llama").set(key, real(factor)).config().rope_scaling;
    };
    EXPECT_EQ(scaling(4).type, nn::RopeType::kLinear) << key;
    EXPECT_EQ(scaling(4).factor, 4) << key;
    EXPECT_EQ(scaling(1), nn::RopeScaling()) << key;
    EXPECT_EQ(scaling(0), nn::RopeScaling()) << key;
  }
  GgufModel yarn("llama");
  yarn.set("rope.scaling.type", text("yarn")).set("rope.scale_linear", real(4));
  EXPECT_EQ(yarn.config().rope_scaling.factor, 4);
  yarn.set("rope.scaling.type", text("none"));
  EXPECT_EQ(yarn.config().rope_scaling, nn::RopeScaling());
}

// llama.cpp's converter writes transformers' attention_factor, which is yarn's whole sharpening.
TEST(Rope, OfAGgufTakesTheFactorOfAttentionAsItIs) {
  GgufModel yarn("llama");
  yarn.set("rope.scaling.type", text("yarn")).set("rope.scaling.factor", real(4));
  EXPECT_EQ(yarn.config().rope_scaling.attention_factor, std::nullopt);
  yarn.set("rope.scaling.yarn_attn_factor", real(1.25F));
  EXPECT_EQ(yarn.config().rope_scaling.attention_factor, 1.25);
  yarn.set("rope.scaling.attn_factor", real(2));
  EXPECT_EQ(yarn.error(),
            "ConfigError: FILE: key 'rope.scaling.attn_factor' is 2, which is not supported, "
            "expected 1");
}

// Programs disagree on which of two goes.
TEST(Rope, OfAFolderThatSaysItTwiceIsTheSame) {
  const test::FamilyFolder glm4("glm4");
  const auto said = [](double part, double base) {
    return json{{"rope_parameters", {{"partial_rotary_factor", part}, {"rope_theta", base}}}};
  };
  EXPECT_EQ(glm4.config(said(0.5, 1e4)), glm4.config());
  EXPECT_EQ(glm4.error(said(0.25, 1e4)),
            "FormatError: DIR/config.json: partial_rotary_factor is 0.5, but 0.25 among rope's "
            "parameters; keep one of them");
  EXPECT_EQ(glm4.error(said(0.5, 1e6)),
            "FormatError: DIR/config.json: rope_theta is 10000, but 1e+06 among rope's parameters; "
            "keep one of them");
  const auto linear = [](double factor) {
    return json{{"rope_type", "linear"}, {"factor", factor}};
  };
  EXPECT_EQ(glm4.config({{"rope_scaling", linear(2)}, {"rope_parameters", linear(2)}}),
            glm4.config({{"rope_scaling", linear(2)}}));
  EXPECT_EQ(glm4.error({{"rope_scaling", linear(2)}, {"rope_parameters", linear(4)}}),
            "FormatError: DIR/config.json: rope_scaling and rope_parameters differ; keep one of "
            "them");
}

// transformers' classes of some families have a scaling then, so that a plain rope must be said.
TEST(Rope, OfAFolderThatDoesNotSayItIsTheClassesOwn) {
  ModelConfig ministral = test::FamilyFolder("ministral3").config({{"rope_parameters", nullptr}});
  EXPECT_EQ(ministral.rope_base, 1e6);
  EXPECT_EQ(ministral.rope_scaling.type, nn::RopeType::kYarn);
  EXPECT_EQ(ministral.rope_scaling.factor, 16);
  EXPECT_EQ(ministral.rope_scaling.original_positions, 16384);
  EXPECT_EQ(ministral.rope_scaling.mscale_all_dim, 1);
  EXPECT_EQ(ministral.query_growth, 0.1);
  ModelConfig oss = test::FamilyFolder("gpt_oss").config({{"rope_scaling", nullptr}});
  EXPECT_EQ(oss.rope_base, 10) << "rope_theta stays";
  EXPECT_EQ(oss.rope_scaling.factor, 32);
  EXPECT_EQ(oss.rope_scaling.original_positions, 4096);
  EXPECT_FALSE(oss.rope_scaling.truncate);

  oss.rope_scaling = ministral.rope_scaling = {};
  ministral.query_growth = 0;
  ministral.max_positions = 512;
  EXPECT_EQ(config_json(oss).at("rope_scaling"), (json{{"rope_type", "default"}}));
  EXPECT_EQ(config_from_json(config_json(oss), "back"), oss);
  EXPECT_EQ(config_json(ministral).at("rope_scaling"),
            (json{{"rope_type", "default"},
                  {"llama_4_scaling_beta", 0.0},
                  {"original_max_position_embeddings", 512}}));
  EXPECT_EQ(config_from_json(config_json(ministral), "back"), ministral);
}

}  // namespace
}  // namespace weft::models
