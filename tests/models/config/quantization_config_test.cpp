#include "weft/models/config/quantization_config.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/core/error_text.h"
#include "tests/core/temp_dir.h"
#include "tests/models/model_files.h"
#include "weft/core/error.h"
#include "weft/models/load/load.h"

namespace weft::models {
namespace {

using nlohmann::json;
using test::model_data;
using testing::error_text;
using testing::replaced;
using testing::TempDir;

// A copy of a fixture whose config.json has other keys.
class QuantizedFolder {
 public:
  explicit QuantizedFolder(const char* fixture = "affine_b4_g64_f32") {
    std::filesystem::copy(model_data(core::join("mlx/", fixture)), dir_.path());
    config_ = json::parse(dir_.read("config.json"));
    config_.erase("quantization_config");
  }
  json& operator[](const char* key) { return config_[key]; }

  std::shared_ptr<const io::TensorFile> open() {
    dir_.write("config.json", config_.dump());
    return io::TensorFile::open(dir_.path());
  }
  std::string error() {
    return replaced(error_text([&] { make_plan(*open(), 1); }), dir_.path(), "DIR");
  }

 private:
  TempDir dir_;
  json config_;
};

TEST(QuantizationConfig, ReadsMlxsWithItsOverrides) {
  const auto file = io::TensorFile::open(model_data("mlx/mixed_override_f32"));
  const auto config = read_quantization_config(*file);
  ASSERT_TRUE(config.has_value());
  EXPECT_EQ(config->all, (StatedScheme{"affine", 3, 64}));
  EXPECT_EQ(config->overrides.at("model.layers.1.mlp.gate_proj"), (StatedScheme{"mxfp4", 4, 32}));
  const LoadPlan plan = make_plan(*file, 1);
  EXPECT_EQ(plan.require("model.layers.1.mlp.gate_proj.weight").format.text, "mxfp4");
  EXPECT_EQ(plan.require("model.layers.1.mlp.down_proj.weight").format.text, "affine 6-bit g32");
  EXPECT_EQ(plan.require("lm_head.weight").format.text, "F32");
  EXPECT_FALSE(read_quantization_config(*io::TensorFile::open(model_data("mlx/plain_f32"))));
  EXPECT_FALSE(read_quantization_config(*io::TensorFile::open(test::smollm2_path())));
}

TEST(QuantizationConfig, ReadsWhetherGroupsAreInAnyOrder) {
  const auto is_ordered = [](const json& keys) {
    QuantizedFolder folder;
    json said = {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 32}};
    said.update(keys);
    folder["quantization"] = nullptr;
    folder["quantization_config"] = said;
    return read_quantization_config(*folder.open())->is_ordered;
  };
  EXPECT_FALSE(is_ordered(json::object()));
  EXPECT_FALSE(is_ordered({{"desc_act", false}}));
  EXPECT_TRUE(is_ordered({{"desc_act", true}}));
  EXPECT_TRUE(is_ordered({{"desc_act", true}, {"static_groups", false}}));
  EXPECT_FALSE(is_ordered({{"desc_act", true}, {"static_groups", true}}));
  EXPECT_FALSE(is_ordered({{"desc_act", true}, {"group_size", -1}}));
}

TEST(QuantizationConfig, RefusesAFileThatDisagrees) {
  QuantizedFolder folder;
  folder["quantization"]["bits"] = 8;
  EXPECT_EQ(folder.error(),
            "FormatError: DIR/config.json: quantization: 'model.embed_tokens' is affine 8-bit g64, "
            "but its tensors are affine 4-bit g64; the file and its config disagree");
  folder["quantization"]["bits"] = 4;
  folder["quantization"]["model.layers.0.mlp.up_proj"] = false;
  EXPECT_EQ(folder.error(),
            "FormatError: DIR/config.json: quantization: 'model.layers.0.mlp.up_proj' is not "
            "quantized, but its tensors are affine 4-bit g64; the file and its config disagree");
  QuantizedFolder plain("plain_f32");
  plain["quantization"] = {{"bits", 4}, {"group_size", 64}};
  plain["quantization"]["model.layers.0.mlp.up_proj"] = {{"bits", 4}, {"group_size", 64}};
  EXPECT_EQ(plain.error(),
            "FormatError: DIR/config.json: quantization: 'model.layers.0.mlp.up_proj' is affine "
            "4-bit g64, but its tensors are not quantized; the file and its config disagree");
}

TEST(QuantizationConfig, RefusesValuesAndMethodsThatItDoesNotKnow) {
  struct Case {
    json value;
    const char* error;
  };
  const std::vector<Case> cases = {
      {{{"bits", 4}}, "FormatError: DIR/config.json: quantization: missing key \"group_size\""},
      {{{"bits", 9}, {"group_size", 64}},
       "FormatError: DIR/config.json: quantization.bits: 9, expected 1 to 8"},
      {{{"bits", 4}, {"group_size", 0}},
       "FormatError: DIR/config.json: quantization.group_size: 0, expected 1 to 1048576, or -1"},
      {{{"bits", 4}, {"group_size", 64}, {"mode", "nf4"}},
       "ConfigError: DIR/config.json: quantization.mode: 'nf4' is not supported; supported: "
       "affine, "
       "mxfp4, mxfp8, nvfp4"}};
  for (const Case& each : cases) {
    QuantizedFolder folder;
    folder["quantization"] = each.value;
    EXPECT_EQ(folder.error(), each.error);
  }
  const auto method_error = [](json value) {
    QuantizedFolder folder;
    folder["quantization"] = nullptr;
    folder["quantization_config"] = std::move(value);
    return folder.error();
  };
  EXPECT_EQ(method_error({{"quant_method", "aqlm"}}),
            "ConfigError: DIR/config.json: quantization_config.quant_method: 'aqlm' is not "
            "supported; supported: awq, gptq, mxfp4, fp8, fbgemm_fp8, compressed-tensors, "
            "bitsandbytes, and MLX's own");
  EXPECT_EQ(method_error({{"quant_method", "bitsandbytes"},
                          {"load_in_4bit", true},
                          {"bnb_4bit_quant_storage", "bfloat16"}}),
            "ConfigError: DIR/config.json: quantization_config.bnb_4bit_quant_storage: 'bfloat16' "
            "is not supported; supported: uint8");
  EXPECT_EQ(method_error({{"quant_method", "gptq"},
                          {"bits", 4},
                          {"group_size", 128},
                          {"checkpoint_format", "marlin"}}),
            "ConfigError: DIR/config.json: quantization_config.checkpoint_format: 'marlin' is not "
            "supported; supported: gptq and gptq_v2");
  EXPECT_EQ(method_error(
                {{"quant_method", "awq"}, {"bits", 4}, {"group_size", 128}, {"version", "Marlin"}}),
            "ConfigError: DIR/config.json: quantization_config.version: 'marlin' is not supported; "
            "supported: gemm, gemv, exllama, ipex");
}

// What is read of a `quantization_config`, or the error.
QuantizationConfig read_stated_config(const json& value) {
  QuantizedFolder folder;
  folder["quantization"] = nullptr;
  folder["quantization_config"] = value;
  return read_quantization_config(*folder.open()).value();
}

std::string stated_config_error(const json& value) {
  QuantizedFolder folder;
  folder["quantization"] = nullptr;
  folder["quantization_config"] = value;
  return folder.error();
}

TEST(QuantizationConfig, ReadsAwqsVersionsAndGroups) {
  json value = {{"quant_method", "awq"}, {"bits", 4}, {"group_size", 64}};
  EXPECT_EQ(read_stated_config(value).all, (StatedScheme{"awq", 4, 64}));
  value["group_size"] = -1;
  for (const char* version : {"gemm", "GEMM", "gemv", "GEMV", "exllama", "ipex"}) {
    value["version"] = version;
    EXPECT_EQ(read_stated_config(value).all, (StatedScheme{"awq", 4, 0})) << version;
  }
  value["version"] = "gemv_fast";
  EXPECT_EQ(stated_config_error(value),
            "ConfigError: DIR/config.json: quantization_config.version: 'gemv_fast' is not "
            "supported; supported: gemm, gemv, exllama, ipex");
}

TEST(QuantizationConfig, ReadsTheBitsOfBitsandbytes) {
  json value = {{"quant_method", "bitsandbytes"}, {"load_in_8bit", true}};
  EXPECT_EQ(read_stated_config(value).all, (StatedScheme{"bitsandbytes", 8, 0}));
  value = {{"quant_method", "bitsandbytes"}, {"load_in_4bit", true}, {"load_in_8bit", false}};
  EXPECT_EQ(read_stated_config(value).all, (StatedScheme{"bitsandbytes", 4, 0}));
}

json compressed(const json& weights) {
  return {{"quant_method", "compressed-tensors"},
          {"format", "float-quantized"},
          {"ignore", {"lm_head", "re:.*gate$"}},
          {"config_groups", {{"group_0", {{"targets", {"Linear"}}, {"weights", weights}}}}}};
}

TEST(QuantizationConfig, ReadsHowFloatsOfEightBitsAreScaled) {
  struct Case {
    json value;
    std::optional<ScaleBlock> block;
  };
  const json floats = {{"type", "float"}, {"num_bits", 8}, {"strategy", "channel"}};
  json tensor = floats, block = floats;
  tensor["strategy"] = "tensor";
  block["strategy"] = "block";
  block["block_structure"] = {128, 64};
  json two = compressed(floats);
  two["config_groups"]["group_1"] = {{"targets", {"Linear"}}, {"weights", tensor}};
  const std::vector<Case> cases = {
      {{{"quant_method", "fp8"},
        {"fmt", "e4m3"},
        {"activation_scheme", "dynamic"},
        {"weight_block_size", {128, 96}}},
       ScaleBlock{128, 96}},
      {{{"quant_method", "fp8"}, {"activation_scheme", "static"}}, std::nullopt},
      {{{"quant_method", "fbgemm_fp8"}, {"activation_scale_ub", 1200.0}}, ScaleBlock{1, 0}},
      {compressed(floats), ScaleBlock{1, 0}},
      {compressed(tensor), ScaleBlock{0, 0}},
      {compressed(block), ScaleBlock{128, 64}},
      {two, std::nullopt}};
  for (const Case& each : cases) {
    const QuantizationConfig config = read_stated_config(each.value);
    EXPECT_EQ(config.all, (StatedScheme{"fp8", 8, 0})) << each.value;
    EXPECT_EQ(config.scale_block, each.block) << each.value;
  }
}

TEST(QuantizationConfig, RefusesFloatsOfEightBitsThatItDoesNotKnow) {
  const auto fp8_error = [](const char* key, const json& value) {
    return stated_config_error({{"quant_method", "fp8"}, {key, value}});
  };
  const std::string where = "DIR/config.json: quantization_config.";
  EXPECT_EQ(fp8_error("fmt", "e5m2"),
            "ConfigError: " + where + "fmt: 'e5m2' is not supported; supported: e4m3");
  EXPECT_EQ(fp8_error("weight_block_size", json::array({128})),
            "FormatError: " + where +
                "weight_block_size: [128], expected rows and columns of a block: [128, 128]");
  EXPECT_EQ(fp8_error("weight_block_size", json::array({128, 0})),
            "FormatError: " + where + "weight_block_size: [128,0], expected 1 to 1048576");
  const std::string group = where + "config_groups.group_0.weights";
  EXPECT_EQ(stated_config_error(compressed({{"type", "int"}, {"num_bits", 4}})),
            "ConfigError: " + group + ": 'int' of 4 bits is not supported; supported: float of 8");
  EXPECT_EQ(
      stated_config_error(compressed({{"type", "float"}, {"num_bits", 8}, {"strategy", "group"}})),
      "ConfigError: " + group +
          ".strategy: 'group' is not supported for floats; supported: tensor, channel and "
          "block");
  json small = compressed({{"type", "float"}, {"num_bits", 4}});
  small["format"] = "nvfp4-pack-quantized";
  EXPECT_EQ(stated_config_error(small),
            "ConfigError: " + where +
                "format: 'nvfp4-pack-quantized' is not supported; supported: float-quantized, "
                "int-quantized, naive-quantized, pack-quantized");
}

json compressed_integers(const json& weights) {
  json config = compressed(weights);
  config["format"] = "pack-quantized";
  return config;
}

TEST(QuantizationConfig, ReadsIntegersOfGroupsOfModules) {
  const json four = {{"type", "int"}, {"num_bits", 4}, {"strategy", "group"}, {"group_size", 128}};
  const json eight = {{"type", "int"}, {"num_bits", 8}, {"strategy", "channel"}};
  EXPECT_EQ(read_stated_config(compressed_integers(four)).all, (StatedScheme{"int", 4, 128}));
  EXPECT_EQ(read_stated_config(compressed_integers(eight)).all, (StatedScheme{"int", 8, 0}));
  json naive = compressed_integers(eight);
  naive["format"] = "naive-quantized";
  EXPECT_EQ(read_stated_config(naive).all, (StatedScheme{"int", 8, 0}));
  // Four bits of eight.
  json wide = compressed_integers(four);
  wide["format"] = "int-quantized";
  EXPECT_EQ(read_stated_config(wide).all, (StatedScheme{"int", 8, 128}));
  json alone = compressed_integers(four);
  alone["sparsity_config"] = {{"format", "dense"}};
  alone["transform_config"] = json::object();
  EXPECT_EQ(read_stated_config(alone).all, (StatedScheme{"int", 4, 128}));
  json two = compressed_integers(four);
  two["config_groups"]["group_1"] = {{"targets", {"re:.*down_proj"}}, {"weights", eight}};
  EXPECT_EQ(read_stated_config(two).all, (StatedScheme{"int", 0, 0}));
}

TEST(QuantizationConfig, RefusesIntegersThatItDoesNotKnow) {
  const std::string group = "DIR/config.json: quantization_config.config_groups.group_0.weights";
  EXPECT_EQ(stated_config_error(compressed_integers({{"type", "float"}, {"num_bits", 8}})),
            "ConfigError: " + group + ": 'float' of 8 bits is not supported; supported: int");
  EXPECT_EQ(stated_config_error(compressed_integers({{"type", "int"}, {"num_bits", 8}})),
            "ConfigError: " + group +
                ".strategy: 'tensor' is not supported for integers; supported: channel and group");
  const std::string where = "DIR/config.json: quantization_config.";
  const json four = {{"type", "int"}, {"num_bits", 4}, {"strategy", "group"}, {"group_size", 128}};
  json sparse = compressed_integers(four), rotated = sparse;
  sparse["sparsity_config"] = {{"format", "sparse-24-bitmask"}};
  EXPECT_EQ(stated_config_error(sparse),
            "ConfigError: " + where +
                "sparsity_config.format: 'sparse-24-bitmask' is not supported; supported: dense");
  rotated["transform_config"] = {{"config_groups", {{"R1", {{"type", "hadamard"}}}}}};
  EXPECT_EQ(stated_config_error(rotated),
            "ConfigError: " + where +
                "transform_config: rotated weights are not supported; use a checkpoint made "
                "without it");
}

TEST(QuantizationConfig, TakesTheBlocksOfScalesIfTheCountsFit) {
  QuantizationConfig config;
  config.where = "CONFIG";
  config.all = {"fp8", 8, 0};
  io::MatrixFormat format;
  format.kind = io::MatrixKind::kScaledFloats;
  format.scheme = "fp8";
  format.bits = 8;
  format.scales = {"w.weight_scale_inv", 2, 7, 96, 0};
  const io::MatrixRef matrix{"w", 192, 100, 0};
  // Two blocks of 192 rows would be of 96 if nobody said that they are of 128.
  config.scale_block = ScaleBlock{128, 15};
  take_stated(config, matrix, format);
  EXPECT_EQ(format.scales.per_out, 128);
  EXPECT_EQ(format.scales.per_in, 15);
  config.scale_block = ScaleBlock{128, 128};
  EXPECT_EQ(error_text([&] { take_stated(config, matrix, format); }),
            "FormatError: CONFIG: a scale for each block of 128 by 128, but 'w.weight_scale_inv' "
            "has 2 by 7, expected 2 by 1; the file and its config disagree");
  config.all = {"awq", 4, 128};
  EXPECT_EQ(error_text([&] { take_stated(config, matrix, format); }),
            "FormatError: CONFIG: 'w' is awq 4-bit g128, but its tensors are fp8; the file and its "
            "config disagree");
}

}  // namespace
}  // namespace weft::models
