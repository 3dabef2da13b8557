// Folders to GGUF and back, for every family, against what other programs have written.
#include "weft/models/convert/export_gguf.h"

#include <c10/core/InferenceMode.h>

#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "tests/core/error_text.h"
#include "tests/models/family_files.h"
#include "tests/ops/tensor_checks.h"
#include "tests/support/shared_folder.h"
#include "weft/models/convert/export.h"
#include "weft/models/convert/folder_config.h"
#include "weft/models/convert/keys/gguf_model_keys.h"
#include "weft/models/load/load.h"

namespace weft::models {
namespace {

using dist::Group;
using test::family_path;
using testing::error_text;
using testing::replaced;
using testing::TempDir;

// Those whose GGUF form another program has written.
const std::vector<std::string> kExportedFamilies = {
    "llama",     "llama_bias", "llama_linear", "llama_llama3", "llama_yarn", "mistral",
    "mixtral",   "qwen2",      "qwen3",        "qwen2_moe",    "qwen3_moe",  "smollm3",
    "granite",   "phi3",       "olmo2",        "gemma2",       "gemma3",     "ministral3",
    "glm4",      "glm4_moe",   "deepseek_v3",  "lfm2",         "qwen3_next", "qwen3_5",
    "phi3_long", "phi3_short", "gemma4",       "gemma4_small", "gpt_oss",    "gemma4_moe"};

// The same, and one whose experts folders have in more than one form.
std::vector<std::string> families_with_stacks() {
  std::vector<std::string> names = kExportedFamilies;
  names.emplace_back("qwen3_5_moe");
  return names;
}

void no_progress(uint64_t, uint64_t) {}

std::string to_gguf(const TempDir& dir, const std::string& name,
                    std::optional<at::ScalarType> dtype = std::nullopt) {
  const std::string folder = test::family_with_tokenizer(dir, name);
  export_gguf(*io::TensorFile::open(folder), dtype, dir.at(name + ".gguf"), no_progress);
  return dir.at(name + ".gguf");
}

std::string to_folder(const std::string& gguf) {
  const std::string folder = gguf + "-folder";
  std::filesystem::create_directory(folder);
  const auto file = io::TensorFile::open(gguf);
  const nlohmann::json quantization = export_weights(*file, {}, Group(), folder, no_progress);
  export_files(*file, quantization, "", folder);
  EXPECT_TRUE(quantization.is_null());
  return folder;
}

at::Tensor logits_of_file(const std::string& model, const at::Tensor& ids_BT, const Group& group) {
  const c10::InferenceMode inference;
  const LoadedModel loaded = load_model(*io::TensorFile::open(model), group);
  return loaded.model->logits(loaded.model->forward(ids_BT, nullptr)).squeeze(0);
}

// Every tensor of `expected` is in `got` with these numbers, and no other; norms to `norm_error`,
// and to rounding what is computed: processors round powers and exponentials in different ways.
void expect_same_numbers(const io::TensorFile& got, const io::TensorFile& expected,
                         double norm_error = 0) {
  EXPECT_EQ(got.tensors().size(), expected.tensors().size());
  for (const io::TensorMeta& tensor : expected.tensors()) {
    ASSERT_NE(got.find(tensor.name), nullptr) << tensor.name;
    EXPECT_EQ(got.require(tensor.name).shape, tensor.shape) << tensor.name;
    const at::Tensor own = io::load_tensor(got, tensor.name, at::kFloat);
    const at::Tensor other = io::load_tensor(expected, tensor.name, at::kFloat);
    const bool is_computed = tensor.name == "rope_freqs.weight" || tensor.name.ends_with("ssm_a") ||
                             tensor.name.ends_with("A_log");
    const bool is_norm = tensor.name.find("norm") != std::string::npos;
    EXPECT_TRUE(is_computed ? at::allclose(own, other, 1e-6, 1e-6)
                            : at::allclose(own, other, 0, is_norm ? norm_error : 0))
        << tensor.name;
  }
}

TEST(ExportGguf, WritesTheTensorsAndKeysOfAnotherProgram) {
  const TempDir dir;
  for (const std::string& name : families_with_stacks()) {
    SCOPED_TRACE(name);
    const auto ours = io::TensorFile::open(to_gguf(dir, name));
    const auto theirs = io::TensorFile::open(family_path(name, "model.gguf"));
    expect_same_numbers(*ours, *theirs);
    for (const auto& [key, value] : theirs->metadata()) {
      // The positions with what linear scaling adds: one program leaves that to the reader.
      if (name == "llama_linear" && key == "llama.context_length") continue;
      ASSERT_TRUE(ours->metadata().contains(key)) << key;
      EXPECT_TRUE(ours->metadata().at(key) == value) << key;
    }
  }
}

TEST(ExportGguf, AndBackGiveTheLogitsOfThePublishedImplementation) {
  test::on_ranks(
      [](const Group& group) {
        const TempDir dir;
        for (const std::string& name : families_with_stacks()) {
          const auto expected = test::read_reference(family_path(name, "ref.safetensors"));
          const std::string gguf = to_gguf(dir, name);
          for (const std::string& form : {gguf, to_folder(gguf)}) {
            const at::Tensor logits_TV = logits_of_file(form, expected.ids_BT, group);
            ASSERT_EQ(logits_TV.sizes(), expected.logits_TV.sizes()) << form;
            EXPECT_LE((logits_TV - expected.logits_TV).abs().max().item<double>(), 1e-4) << form;
          }
        }
      },
      {1, 2, 3});
}

TEST(ExportGguf, AndBackGiveTheFolderAgain) {
  const TempDir dir;
  for (const std::string& name : kExportedFamilies) {
    SCOPED_TRACE(name);
    const auto back = io::TensorFile::open(to_folder(to_gguf(dir, name)));
    const auto folder = io::TensorFile::open(family_path(name));
    // A weight less 1 has more digits than the float32 of it and 1 keeps.
    const double rounding = std::ldexp(1, -23);
    expect_same_numbers(*back, *folder, read_config(*folder).norm_offset != 0 ? rounding : 0);
    ModelConfig config = read_config(*back);
    const ModelConfig expected = read_config(*folder);
    // GGUF has it as float32.
    EXPECT_FLOAT_EQ(static_cast<float>(config.norm_eps), static_cast<float>(expected.norm_eps));
    config.norm_eps = expected.norm_eps;
    EXPECT_TRUE(config == expected) << config_json(config) << config_json(expected);
  }
}

// The GGUF of another program has no tokenizer, but weights in blocks.
TEST(ExportWeights, KeepsExpertsInBlocksQuantizedAndStacked) {
  const TempDir dir;
  const auto file = io::TensorFile::open(family_path("mixtral_q8_0", "model.gguf"));
  nlohmann::json config = config_json(read_config(*file));
  config["quantization"] = export_weights(*file, {}, Group(), dir.path(), no_progress);
  EXPECT_EQ(config["quantization"],
            nlohmann::json({{"bits", 8}, {"group_size", 32}, {"mode", "affine"}}));
  dir.write("config.json", config.dump());
  const auto written = io::TensorFile::open(dir.path());
  EXPECT_EQ(written->require("model.layers.1.block_sparse_moe.switch_mlp.down_proj.scales").shape,
            (std::vector<int64_t>{3, 64, 2}));
  const auto expected = test::read_reference(family_path("mixtral_q8_0", "ref.safetensors"));
  const at::Tensor logits_TV = logits_of_file(dir.path(), expected.ids_BT, Group());
  EXPECT_LE((logits_TV - expected.logits_TV).abs().max().item<double>(), 1e-4);
}

// Such GGUF is read, and written as folders.
TEST(ExportWeights, WritesTheFolderOfAGgufOfGemma4) {
  for (const char* name : {"gemma4", "gemma4_moe", "gemma4_small"}) {
    SCOPED_TRACE(name);
    const TempDir dir;
    const auto file = io::TensorFile::open(family_path(name, "model.gguf"));
    const ModelConfig config = folder_config(*file);
    EXPECT_TRUE(export_weights(*file, {}, Group(), dir.path(), no_progress).is_null());
    dir.write("config.json", config_json(config).dump());
    EXPECT_TRUE(read_config(*io::TensorFile::open(dir.path())) == config);
    const auto expected = test::read_reference(family_path(name, "ref.safetensors"));
    const at::Tensor logits_TV = logits_of_file(dir.path(), expected.ids_BT, Group());
    EXPECT_LE((logits_TV - expected.logits_TV).abs().max().item<double>(), 1e-4);
  }
}

TEST(ExportWeights, WritesExpertsThatAreStackedEachByItself) {
  for (const auto& [name, source] :
       {std::pair{"mixtral_q8_0", "model.gguf"}, {"mixtral_mlx", ""}}) {
    const TempDir dir;
    const auto file = io::TensorFile::open(family_path(name, source));
    ExportOptions options;
    options.dtype = at::kFloat;
    EXPECT_TRUE(export_weights(*file, options, Group(), dir.path(), no_progress).is_null());
    dir.write("config.json", config_json(read_config(*file)).dump());
    const auto written = io::TensorFile::open(dir.path());
    EXPECT_EQ(written->require("model.layers.1.block_sparse_moe.experts.2.w2.weight").shape,
              (std::vector<int64_t>{64, 64}));
    const auto expected = test::read_reference(family_path(name, "ref.safetensors"));
    const at::Tensor logits_TV = logits_of_file(dir.path(), expected.ids_BT, Group());
    EXPECT_LE((logits_TV - expected.logits_TV).abs().max().item<double>(), 1e-4) << name;
  }
}

// Each rank writes its rows of q, k and v to their places in one tensor.
TEST(ExportWeights, WritesFusedMatricesAsOneOnAnyNumberOfRanks) {
  test::on_ranks(
      [](const Group& group) {
        const TempDir dir;
        const std::string folder = test::shared_folder(dir.path(), group);
        ExportOptions options;
        options.dtype = at::kBFloat16;
        const auto gguf = io::TensorFile::open(family_path("phi3", "model.gguf"));
        export_weights(*gguf, options, group, folder, no_progress);
        expect_same_numbers(*io::TensorFile::open(folder),
                            *io::TensorFile::open(family_path("phi3")));
        group.barrier();
      },
      {1, 2, 3});
}

TEST(ExportWeights, RefusesDivisorsThatConfigJsonCanNotSay) {
  const TempDir dir;
  const std::string gguf = to_gguf(dir, "llama_llama3");
  std::string bytes = dir.read("llama_llama3.gguf");
  const auto file = io::TensorFile::open(gguf);
  const io::TensorMeta& divisors = file->require("rope_freqs.weight");
  const float other = 3;
  std::memcpy(bytes.data() + divisors.offset, &other, sizeof other);
  dir.write("other.gguf", bytes);
  const auto changed = io::TensorFile::open(dir.at("other.gguf"));
  std::filesystem::create_directory(dir.at("out"));
  EXPECT_EQ(
      replaced(
          error_text([&] { export_weights(*changed, {}, Group(), dir.at("out"), no_progress); }),
          changed->path(), "FILE"),
      "ConfigError: FILE: tensor 'rope_freqs.weight' is no rope scaling of Llama 3's kind, so "
      "config.json can't say it; keep the GGUF");
  EXPECT_TRUE(std::filesystem::is_empty(dir.at("out")));
}

// What a folder says that GGUF can't: an error before anything is written.
TEST(ExportGguf, RefusesWhatGgufCanNotSay) {
  const auto error = [](const std::string& name, const std::string& text = "",
                        const std::string& instead = "") {
    const TempDir dir;
    const std::string folder = test::family_with_tokenizer(dir, name);
    const std::string config = name + "/config.json";
    if (!text.empty()) dir.write(config, replaced(dir.read(config), text, instead));
    const auto file = io::TensorFile::open(folder);
    const std::string got =
        error_text([&] { export_gguf(*file, std::nullopt, dir.at("out.gguf"), no_progress); });
    EXPECT_FALSE(std::filesystem::exists(dir.at("out.gguf")));
    return replaced(got, folder, "DIR");
  };
  EXPECT_EQ(error("llama_dynamic"),
            "ConfigError: DIR: GGUF has no dynamic rope scaling; keep the folder, or take "
            "rope_scaling out of config.json for texts of at most 12 tokens");
  EXPECT_EQ(error("gemma4", "\"partial_rotary_factor\": 0.25",
                  "\"factor\": 2.0, \"partial_rotary_factor\": 0.25"),
            "ConfigError: DIR: GGUF has no factor of a proportional rope, which is 2; keep the "
            "folder");
  EXPECT_EQ(error("llama_yarn", "\"factor\": 4.0", "\"truncate\": false, \"factor\": 4.0"),
            "ConfigError: DIR: GGUF's yarn rope scaling begins and ends at whole dims, but "
            "truncate is false; keep the folder");
  EXPECT_EQ(error("qwen2_window"),
            "ConfigError: DIR: a sliding window in some layers only can't be written as GGUF; keep "
            "the folder");
  EXPECT_EQ(error("smollm3", "\"no_rope_layers\": [\n  1,", "\"no_rope_layers\": [\n  0,"),
            "ConfigError: DIR: readers of GGUF's 'smollm3' leave out rope in each layer whose "
            "number is a multiple of 4, but no_rope_layers says otherwise; keep the folder");
  EXPECT_EQ(error("deepseek_v3_halves"),
            "ConfigError: DIR: readers of GGUF's 'deepseek2' turn neighbouring features, but "
            "rope_interleave is false; keep the folder");
  EXPECT_EQ(error("deepseek_v3", "\"mscale\": 1.0", "\"mscale\": 0.5"),
            "ConfigError: DIR: GGUF has one number for mscale and mscale_all_dim, which are 0.5 "
            "and 1; keep the folder");
  EXPECT_EQ(error("gemma2_scalar"),
            "ConfigError: DIR: readers of GGUF's 'gemma2' take the scale of scores from the sizes, "
            "but query_pre_attn_scalar says otherwise; keep the folder");
  EXPECT_EQ(error("gemma2", "\"sliding_attention\",\n  \"full_attention\"",
                  "\"full_attention\",\n  \"sliding_attention\""),
            "ConfigError: DIR: readers of GGUF's 'gemma2' have a window in all layers but each "
            "whose number is a multiple of 2, but layer_types says otherwise; keep the folder");
  EXPECT_EQ(error("qwen3_moe_mixed"),
            "ConfigError: DIR: layers without experts beside those that have some can't be "
            "written as GGUF; keep the folder");
  EXPECT_EQ(error("qwen3_moe", "\"norm_topk_prob\": true", "\"norm_topk_prob\": false"),
            "ConfigError: DIR: norm_topk_prob is false, but readers of GGUF's 'qwen3moe' take the "
            "other; keep the folder");
}

TEST(ExportGguf, RefusesConfigurationsThatGgufCanNotSay) {
  const auto error = [](const std::string& name, const auto& change) {
    ModelConfig config = read_config(*io::TensorFile::open(family_path(name)));
    EXPECT_EQ(error_text([&] { gguf_architecture(config, "here"); }), "no error");
    change(config);
    return error_text([&] { gguf_architecture(config, "here"); });
  };
  EXPECT_EQ(error("glm4_moe_lite", [](ModelConfig& c) { c.experts.plain_layers = {1}; }),
            "ConfigError: here: GGUF has layers without experts before all that have some, but "
            "mlp_layer_types says otherwise; keep the folder");
  const auto rope = [](nn::RopeType type) {
    return [type](ModelConfig& c) { c.rope_scaling.type = type; };
  };
  EXPECT_EQ(error("granite", rope(nn::RopeType::kLlama3)), "no error");
  EXPECT_EQ(error("qwen2", rope(nn::RopeType::kLlama3)),
            "ConfigError: here: readers of GGUF's 'qwen2' have no rope scaling of Llama 3's kind; "
            "keep the folder");
  EXPECT_EQ(error("llama", rope(nn::RopeType::kLongRope)),
            "ConfigError: here: readers of GGUF's 'llama' have no longrope; keep the folder");
}

TEST(ExportGguf, NamesWhatLlamaCppDoesNotRead) {
  const auto config_of = [](const char* name) {
    return read_config(*io::TensorFile::open(family_path(name)));
  };
  using Notes = std::vector<std::string>;
  EXPECT_EQ(ignored_in_gguf(config_of("mistral")),
            Notes{"attention.sliding_window: llama.cpp does not read this for 'llama' and computes "
                  "otherwise behind 5 tokens"});
  for (const char* name : {"llama_yarn", "gemma2", "gpt_oss", "gemma4"}) {
    EXPECT_EQ(ignored_in_gguf(config_of(name)), Notes{}) << name;
  }
  ModelConfig yarn = config_of("llama_yarn");
  yarn.rope_scaling.beta_fast = 16;
  EXPECT_EQ(ignored_in_gguf(yarn),
            Notes{"rope.scaling.yarn_beta_fast, rope.scaling.yarn_beta_slow: llama.cpp does not "
                  "read this for 'llama' and computes with 32 and 1"});
}

TEST(ExportGguf, SaysYarnsNumbersInKeys) {
  const TempDir dir;
  const std::string folder = test::family_with_tokenizer(dir, "llama_yarn");
  dir.write("llama_yarn/config.json",
            replaced(dir.read("llama_yarn/config.json"), "\"factor\": 4.0",
                     "\"beta_fast\": 16.0, \"beta_slow\": 2.0, \"attention_factor\": 1.25, "
                     "\"factor\": 4.0"));
  const auto file = io::TensorFile::open(folder);
  export_gguf(*file, std::nullopt, dir.at("out.gguf"), no_progress);
  const auto gguf = io::TensorFile::open(dir.at("out.gguf"));
  EXPECT_EQ(std::get<double>(gguf->metadata().at("llama.rope.scaling.yarn_beta_fast")), 16);
  EXPECT_EQ(std::get<double>(gguf->metadata().at("llama.rope.scaling.yarn_beta_slow")), 2);
  EXPECT_NEAR(std::get<double>(gguf->metadata().at("llama.rope.scaling.attn_factor")),
              1.25 / (1 + 0.1 * std::log(4.0)), 1e-6);
  const nn::RopeScaling got = read_config(*gguf).rope_scaling;
  const nn::RopeScaling expected = read_config(*file).rope_scaling;
  EXPECT_EQ(got.beta_fast, expected.beta_fast);
  EXPECT_EQ(got.beta_slow, expected.beta_slow);
  EXPECT_NEAR(got.attention_factor.value(), 1.25, 1e-6);
}

}  // namespace
}  // namespace weft::models
