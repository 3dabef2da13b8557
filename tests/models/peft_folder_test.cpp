// Folders that Hugging Face's peft has saved, and its logits with them.
#include "weft/models/peft_folder.h"

#include <c10/core/InferenceMode.h>

#include <nlohmann/json.hpp>

#include "tests/core/error_text.h"
#include "tests/core/temp_dir.h"
#include "tests/models/model_files.h"
#include "tests/ops/tensor_checks.h"
#include "weft/core/files/file.h"
#include "weft/io/formats/write_safetensors.h"
#include "weft/models/load/load.h"

namespace weft::models {
namespace {

using dist::Group;
using test::model_data;
using test::on_ranks;
using testing::error_text;
using testing::replaced;
using testing::TempDir;
using Json = nlohmann::json;

const std::vector<std::string> kAdapters = {"plain", "patterns"};

std::string peft_path(const std::string& name, const std::string& file = "") {
  return model_data("peft/" + name + "/" + file);
}

at::Tensor adapted_logits(const std::string& base, const AdapterSource& adapters,
                          const at::Tensor& ids_BT, const Group& group) {
  const auto file = io::TensorFile::open(model_data("families/" + base));
  check_adapter(adapters, make_plan(*file, group.size()), base);
  const auto model = load_model(*file, group).model;
  attach_adapter(*model, adapters);
  const c10::InferenceMode inference;
  return model->logits(model->forward(ids_BT, nullptr)).squeeze(0);
}

TEST(PeftFolder, GivesTheLogitsOfPeft) {
  on_ranks([](const Group& group) {
    for (const std::string& name : kAdapters) {
      const auto expected = test::read_reference(peft_path(name, "ref.safetensors"));
      const auto reference = io::TensorFile::open(peft_path(name, "ref.safetensors"));
      const auto base = std::get<std::string>(reference->metadata().at("base"));
      const auto adapters = open_peft_folder(peft_path(name));
      const at::Tensor logits_TV = adapted_logits(base, *adapters, expected.ids_BT, group);
      // What the processors' orders of float32 sums leave: 0.7e-4 to 1.9e-4.
      EXPECT_LE((logits_TV - expected.logits_TV).abs().max().item<double>(), 4e-4) << name;
    }
  });
}

// Rank 3 and alpha 8 with rank stabilization, but for layers that the two patterns name.
TEST(PeftFolder, KnowsPatternsAndRankStabilization) {
  const auto adapters = open_peft_folder(peft_path("patterns"));
  const auto layer = [&](const std::string& place) {
    for (const AdapterLayer& each : adapters->layers()) {
      if (each.place == place) return each;
    }
    ADD_FAILURE() << place;
    return AdapterLayer();
  };
  EXPECT_EQ(adapters->layers().size(), 14U);
  EXPECT_EQ(layer("model.layers.0.self_attn.q_proj").rank, 2);
  EXPECT_NEAR(layer("model.layers.0.self_attn.q_proj").scale, 8 / std::sqrt(2), 1e-12);
  EXPECT_EQ(layer("model.layers.1.mlp.down_proj").rank, 5);
  EXPECT_NEAR(layer("model.layers.1.mlp.down_proj").scale, 3 / std::sqrt(5), 1e-12);
  EXPECT_NEAR(layer("model.layers.0.mlp.down_proj").scale, 3 / std::sqrt(3), 1e-12);
  EXPECT_NEAR(layer("model.layers.0.mlp.up_proj").scale, 8 / std::sqrt(3), 1e-12);
}

TEST(PeftFolder, WritesWhatPeftWrites) {
  const TempDir dir;
  const auto adapters = open_peft_folder(peft_path("plain"));
  PeftConfig config;
  config.base_model = "llama";
  config.rank = 4;
  config.alpha = 16;
  config.targets = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"};
  write_peft_folder(*adapters, config, dir.path());
  EXPECT_EQ(dir.read(kPeftWeightsName),
            core::read_text_file(peft_path("plain", kPeftWeightsName), 1 << 20));
  const Json theirs =
      Json::parse(core::read_text_file(peft_path("plain", kPeftConfigName), 1 << 20));
  const Json ours = Json::parse(dir.read(kPeftConfigName));
  for (const auto& [key, value] : ours.items()) {
    if (key == "target_modules") continue;
    EXPECT_EQ(value, theirs.at(key)) << key;
  }
  const auto again = open_peft_folder(dir.path());
  ASSERT_EQ(again->layers().size(), adapters->layers().size());
  for (size_t i = 0; i < again->layers().size(); ++i) {
    EXPECT_EQ(again->layers()[i].scale, adapters->layers()[i].scale);
  }
}

// An adapter of one layer, of which the header alone is asked for.
class NamedLayer : public AdapterSource {
 public:
  explicit NamedLayer(const std::string& place) : AdapterSource("RUN", {{place, 1, 1, 1, 1}}) {}
  nn::LoraFactors read(const AdapterLayer&) const override { return {}; }
};

TEST(PeftFolder, IsNotWrittenOfLayersThatAreOthersThere) {
  const auto refusal = [](const std::string& family, const std::string& place) {
    const auto config = read_config(*io::TensorFile::open(model_data("families/" + family)));
    return error_text([&] { check_peft_layers(NamedLayer(place), config); });
  };
  const std::string instead = "; weft fuse writes a model with them";
  for (const char* place : {"model.layers.0.self_attn.q_proj", "lm_head"}) {
    EXPECT_EQ(refusal("llama", place), "no error");
  }
  EXPECT_EQ(refusal("phi3", "model.layers.0.self_attn.o_proj"), "no error");
  for (const char* table : {"model.embed_tokens", "model.embed_tokens_per_layer"}) {
    EXPECT_EQ(refusal("gemma4_small", table),
              "ConfigError: RUN: adapts '" + std::string(table) +
                  "', an embedding, whose adapters peft has in another form" + instead);
  }
  for (const auto& [family, place] :
       {std::pair("phi3", "model.layers.0.self_attn.q_proj"),
        std::pair("glm4", "model.layers.1.mlp.up_proj"),
        std::pair("gpt_oss", "model.layers.1.mlp.experts.0.down_proj")}) {
    EXPECT_EQ(refusal(family, place), "ConfigError: RUN: adapts '" + std::string(place) +
                                          "', which is a part of another layer in transformers" +
                                          instead);
  }
}

// A folder whose files begin as those of the plain case.
class ChangedAdapter {
 public:
  ChangedAdapter()
      : config_(Json::parse(core::read_text_file(peft_path("plain", kPeftConfigName), 1 << 20))) {
    std::filesystem::copy_file(peft_path("plain", kPeftWeightsName), dir_.at(kPeftWeightsName));
  }
  Json& config() { return config_; }
  const TempDir& dir() const { return dir_; }
  std::string refusal() {
    dir_.write(kPeftConfigName, config_.dump());
    return replaced(error_text([&] { open_peft_folder(dir_.path()); }), dir_.path(), "FOLDER");
  }

 private:
  TempDir dir_;
  Json config_;
};

TEST(PeftFolder, RefusesOtherKindsOfAdapters) {
  EXPECT_EQ(ChangedAdapter().refusal(), "no error");
  ChangedAdapter other;
  other.config()["peft_type"] = "LOHA";
  EXPECT_EQ(other.refusal(),
            "ConfigError: FOLDER/adapter_config.json: peft_type 'LOHA', expected 'LORA'");
  ChangedAdapter dora;
  dora.config()["use_dora"] = true;
  EXPECT_EQ(dora.refusal(),
            "ConfigError: FOLDER/adapter_config.json: use_dora 'true', expected none: weft reads "
            "plain LoRA; merge it in peft (merge_and_unload) and give the merged model");
  ChangedAdapter modules;
  modules.config()["modules_to_save"] = {"lm_head"};
  EXPECT_NE(modules.refusal().find("modules_to_save '[\"lm_head\"]', expected none"),
            std::string::npos);
  ChangedAdapter bias;
  bias.config()["bias"] = "all";
  EXPECT_EQ(bias.refusal(),
            "ConfigError: FOLDER/adapter_config.json: bias '\"all\"', expected \"none\"; merge it "
            "in peft (merge_and_unload)");
  ChangedAdapter pattern;
  pattern.config()["alpha_pattern"] = {{".*q_proj", 3}};
  EXPECT_EQ(pattern.refusal(),
            "ConfigError: FOLDER/adapter_config.json: alpha_pattern: '.*q_proj' is a regular "
            "expression, expected a layer's name");
}

TEST(PeftFolder, RefusesFilesThatDoNotFitEachOther) {
  ChangedAdapter rank;
  rank.config()["r"] = 5;
  EXPECT_NE(rank.refusal().find("A [4, 44] and B [48, 4], expected [5, in] and [out, 5] as "
                                "adapter_config.json has the rank"),
            std::string::npos)
      << rank.refusal();
  ChangedAdapter targets;
  targets.config()["target_modules"] = {"q_proj", "qkv_proj"};
  EXPECT_EQ(targets.refusal(),
            "FormatError: FOLDER/adapter_model.safetensors: no layer 'qkv_proj', which "
            "target_modules of adapter_config.json names");
  ChangedAdapter missing;
  missing.config().erase("lora_alpha");
  EXPECT_NE(missing.refusal().find("lora_alpha"), std::string::npos);
}

TEST(PeftFolder, RefusesTensorsOfOtherNames) {
  const std::vector<float> values(8, 1);
  const auto bytes = std::as_bytes(std::span(values));
  ChangedAdapter other;
  io::write_safetensors(
      other.dir().at(kPeftWeightsName),
      {{"base_model.model.lm_head.lora_embedding_A", io::Dtype::kF32, {8}, bytes}}, {});
  EXPECT_EQ(other.refusal(),
            "ConfigError: FOLDER/adapter_model.safetensors: tensor "
            "'base_model.model.lm_head.lora_embedding_A', expected names like "
            "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight: adapters of linear "
            "layers; merge others in peft (merge_and_unload)");
  ChangedAdapter half;
  io::write_safetensors(
      half.dir().at(kPeftWeightsName),
      {{"base_model.model.lm_head.lora_A.weight", io::Dtype::kF32, {4, 2}, bytes}}, {});
  EXPECT_NE(half.refusal().find("missing tensor"), std::string::npos) << half.refusal();
}

TEST(PeftFolder, RefusesAFolderWithoutItsFiles) {
  const TempDir dir;
  const auto refusal = [&] {
    return replaced(error_text([&] { open_peft_folder(dir.path()); }), dir.path(), "FOLDER");
  };
  EXPECT_EQ(refusal(),
            "FormatError: FOLDER: no adapter_config.json, expected a folder that peft has saved");
  dir.write(kPeftConfigName, "{}");
  EXPECT_EQ(refusal(),
            "FormatError: FOLDER: no adapter_model.safetensors; save it with "
            "safe_serialization=True");
}

}  // namespace
}  // namespace weft::models
