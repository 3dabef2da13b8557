// Every family of models against transformers, in both kinds of file.
#include "weft/models/decoder/decoder.h"

#include <c10/core/InferenceMode.h>

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/core/error_text.h"
#include "tests/core/temp_dir.h"
#include "tests/models/family_files.h"
#include "tests/models/model_files.h"
#include "tests/models/model_logits.h"
#include "tests/models/passes/pieces.h"
#include "tests/ops/tensor_checks.h"
#include "weft/core/files/file.h"
#include "weft/models/convert/export.h"
#include "weft/models/load/load.h"

namespace weft::models {
namespace {

using dist::Group;
using test::family_path;
using test::logits_of;
using test::on_ranks;
using testing::error_text;
using testing::replaced;

// Of some families, checkpoints with weights in other forms as well.
std::vector<std::string> decoder_cases() {
  std::vector<std::string> names = test::kFamilyCheckpoints;
  names.insert(names.end(), {"mixtral_q8_0", "mixtral_mlx", "mixtral_plain", "gpt_oss_mxfp4",
                             "llama_grids", "qwen3_fp8", "deepseek_v3_fp8", "qwen3_5_q8_0"});
  return names;
}

// A case's folder and its GGUF, as far as there are.
std::vector<std::string> forms_of(const std::string& name) {
  std::vector<std::string> forms;
  if (std::filesystem::exists(family_path(name, "config.json"))) forms.push_back(family_path(name));
  const std::string gguf = family_path(name, "model.gguf");
  if (std::filesystem::exists(gguf)) forms.push_back(gguf);
  EXPECT_FALSE(forms.empty()) << name;
  return forms;
}

at::Tensor logits_by_pieces(CausalLM& model, const at::Tensor& ids_BT,
                            const std::vector<int64_t>& pieces) {
  const c10::InferenceMode inference;
  return test::logits_in_pieces(model, ids_BT, pieces).squeeze(0);
}

void expect_near_logits(const at::Tensor& logits_TV, const at::Tensor& expected_TV,
                        const std::string& what) {
  ASSERT_EQ(logits_TV.sizes(), expected_TV.sizes()) << what;
  EXPECT_LE((logits_TV - expected_TV).abs().max().item<double>(), 1e-4) << what;
}

TEST(Decoder, GivesTheLogitsOfThePublishedImplementation) {
  on_ranks([](const Group& group) {
    for (const std::string& name : decoder_cases()) {
      const auto expected = test::read_reference(family_path(name, "ref.safetensors"));
      const bool depends_on_pieces = name == "llama_dynamic";
      const at::Tensor pieces_TV =
          depends_on_pieces
              ? io::load_tensor(*io::TensorFile::open(family_path(name, "ref.safetensors")),
                                "piece_logits", at::kFloat)
              : expected.logits_TV;
      for (const std::string& form : forms_of(name)) {
        const LoadedModel loaded = load_model(*io::TensorFile::open(form), group);
        CausalLM& model = *loaded.model;
        expect_near_logits(logits_of(model, expected.ids_BT), expected.logits_TV, form);
        expect_near_logits(logits_by_pieces(model, expected.ids_BT, {8, 8, 4}), pieces_TV,
                           form + ", in pieces");
        // Many small steps are slow where ranks share cores.
        if (depends_on_pieces || group.size() > 2) continue;
        expect_near_logits(logits_by_pieces(model, expected.ids_BT, {13, 1, 1, 1, 1, 1, 1, 1}),
                           pieces_TV, form + ", token by token");
      }
    }
  });
}

// The folder of a model of texts and pictures around one of texts: longer names, and tensors that
// only it has.
void write_around(const testing::TempDir& dir, const std::string& name, const std::string& type,
                  const std::vector<std::string>& others,
                  const std::string& prefix = "model.language_model.") {
  constexpr size_t kLengthBytes = 8, kExtra = 4;
  const std::string file =
      core::read_text_file(test::family_path(name, "model.safetensors"), 1 << 20);
  uint64_t length = 0;
  std::memcpy(&length, file.data(), kLengthBytes);
  const auto header = nlohmann::json::parse(file.substr(kLengthBytes, length));
  std::string data = file.substr(kLengthBytes + length);
  nlohmann::json longer;
  for (const auto& [key, value] : header.items()) {
    const bool is_within = key.starts_with("model.");
    const bool is_head = key == "lm_head.weight" && prefix.starts_with("language_model.");
    longer[is_within ? prefix + key.substr(6) : is_head ? "language_model." + key : key] = value;
  }
  for (const std::string& extra : others) {
    longer[extra] = {
        {"dtype", "BF16"}, {"shape", {2}}, {"data_offsets", {data.size(), data.size() + kExtra}}};
    data.resize(data.size() + kExtra);
  }
  const std::string text = longer.dump();
  length = text.size();
  dir.write("model.safetensors",
            std::string(reinterpret_cast<const char*>(&length), kLengthBytes) + text + data);
  const auto own =
      nlohmann::json::parse(core::read_text_file(test::family_path(name, "config.json"), 1 << 20));
  dir.write("config.json", nlohmann::json{{"model_type", type}, {"text_config", own}}.dump());
}

TEST(Decoder, ReadsTheModelOfTextsWithinOneOfTextsAndPictures) {
  struct Case {
    const char *name, *type;
    std::vector<std::string> others;
  };
  const std::vector<std::string> sees = {
      "model.vision_tower.std_bias", "model.audio_tower.x.weight", "model.embed_vision.x.weight"};
  for (const Case& c : std::vector<Case>{
           {"qwen3_5", "qwen3_5", {"mtp.fc.weight", "model.visual.merger.norm.weight"}},
           {"gemma4", "gemma4", sees},
           {"gemma4_moe", "gemma4", sees},
           // Checkpoints have what layers with others' keys don't read.
           {"gemma4_small", "gemma4", {"model.language_model.layers.3.self_attn.k_proj.weight"}}}) {
    const testing::TempDir dir;
    write_around(dir, c.name, c.type, c.others);
    const auto expected = test::read_reference(test::family_path(c.name, "ref.safetensors"));
    const LoadedModel loaded = load_model(*io::TensorFile::open(dir.path()), Group());
    expect_near_logits(logits_of(*loaded.model, expected.ids_BT), expected.logits_TV, c.name);
    // Written anew it is a model of texts alone, in config.json as in the names of its weights.
    const testing::TempDir out;
    const auto file = io::TensorFile::open(dir.path());
    export_files(*file, export_weights(*file, {}, Group(), out.path(), [](uint64_t, uint64_t) {}),
                 "", out.path());
    const auto config = nlohmann::json::parse(out.read("config.json"));
    EXPECT_EQ(config.at("model_type"), core::join(c.type, "_text"));
    EXPECT_EQ(config.count("text_config"), 0U);
    const auto written = io::TensorFile::open(out.path());
    EXPECT_NE(written->find("model.layers.0.input_layernorm.weight"), nullptr) << c.name;
    const LoadedModel again = load_model(*written, Group());
    expect_near_logits(logits_of(*again.model, expected.ids_BT), expected.logits_TV, c.name);
  }
}

TEST(Decoder, ReadsTheModelOfTextsWithinOneAsMlxNamesIt) {
  for (const char* name : {"gemma4", "gemma4_moe"}) {
    const testing::TempDir dir;
    write_around(dir, name, "gemma4", {"vision_tower.std_bias", "embed_vision.x.weight"},
                 "language_model.model.");
    const auto expected = test::read_reference(test::family_path(name, "ref.safetensors"));
    const LoadedModel loaded = load_model(*io::TensorFile::open(dir.path()), Group());
    expect_near_logits(logits_of(*loaded.model, expected.ids_BT), expected.logits_TV, name);
  }
}

// Of Gemma 4's a file of more layers than config.json says is another model's.
TEST(Decoder, RefusesTensorsOfGemma4ThatItWouldNotUse) {
  const testing::TempDir dir;
  write_around(dir, "gemma4_small", "gemma4", {"model.language_model.layers.6.layer_scalar"});
  EXPECT_EQ(replaced(error_text([&] { load_model(*io::TensorFile::open(dir.path()), Group()); }),
                     dir.path(), "DIR"),
            "FormatError: DIR: 1 tensors that the model does not use, e.g. "
            "[model.language_model.layers.6.layer_scalar]; the file holds another model");
}

TEST(Decoder, RefusesExpertsOfGemma4ThatAreNotPlain) {
  const testing::TempDir dir;
  std::filesystem::copy(test::family_path("gemma4_moe"), dir.path());
  const std::string name = "model.layers.0.experts.down_proj";
  dir.write("model.safetensors",
            replaced(dir.read("model.safetensors"), "\"" + name + "\":{\"dtype\":\"BF16\"",
                     "\"" + name + "\":{\"dtype\":\"I16\" "));
  EXPECT_EQ(replaced(error_text([&] { load_model(*io::TensorFile::open(dir.path()), Group()); }),
                     dir.path(), "DIR"),
            "ConfigError: DIR: experts 'model.layers.0.experts.down_proj' are "
            "I16, which is not supported for experts in one tensor, expected F32, F16 or BF16; "
            "take the checkpoint that was not quantized");
}

// A change of a case's config.json.
struct Change {
  const char* name;
  const char* text;
  const char* instead;
};

const std::vector<Change> kChanges = {
    {"llama_linear", "\"factor\": 4.0", "\"factor\": 1.0"},
    {"llama_dynamic", "\"factor\": 2.0", "\"factor\": 4.0"},
    {"llama_llama3", "\"factor\": 8.0", "\"factor\": 1.0"},
    {"llama_yarn", "\"factor\": 4.0", "\"factor\": 1.0"},
    {"mistral", "\"sliding_window\": 5", "\"sliding_window\": null"},
    {"qwen2_window", "\"sliding_attention\"", "\"full_attention\""},
    {"qwen2_moe", "\"norm_topk_prob\": false", "\"norm_topk_prob\": true"},
    {"qwen3_moe", "\"norm_topk_prob\": true", "\"norm_topk_prob\": false"},
    {"mixtral", "\"num_experts_per_tok\": 2", "\"num_experts_per_tok\": 1"},
    {"smollm3", "  1,\n  0\n", "  1,\n  1\n"},
    {"smollm3_window", "\"sliding_window\": 6", "\"sliding_window\": 64"},
    {"granite", "\"embedding_multiplier\": 3.0", "\"embedding_multiplier\": 2.0"},
    {"granite", "\"attention_multiplier\": 0.75", "\"attention_multiplier\": 0.5"},
    {"granite", "\"residual_multiplier\": 0.375", "\"residual_multiplier\": 1.0"},
    {"granite", "\"logits_scaling\": 1.5", "\"logits_scaling\": 1.0"},
    {"phi3", "\"partial_rotary_factor\": 0.5", "\"partial_rotary_factor\": 1.0"},
    {"gemma2", "\"attn_logit_softcapping\": 4.0", "\"attn_logit_softcapping\": null"},
    {"gemma2", "\"final_logit_softcapping\": 6.0", "\"final_logit_softcapping\": null"},
    {"gemma2", "\"sliding_window\": 6", "\"sliding_window\": 64"},
    {"gemma2_scalar", "\"query_pre_attn_scalar\": 20", "\"query_pre_attn_scalar\": 8"},
    {"gemma3", "\"rope_local_base_freq\": 20.0", "\"rope_local_base_freq\": 300.0"},
    {"gemma3", "\"factor\": 4.0", "\"factor\": 1.0"},
    {"gemma3", "\"sliding_window\": 6", "\"sliding_window\": 64"},
    {"gemma4", "\"partial_rotary_factor\": 0.25", "\"partial_rotary_factor\": 0.5"},
    {"gemma4", "\"rope_theta\": 300.0", "\"rope_theta\": 3000.0"},
    {"gemma4", "\"rope_theta\": 20.0", "\"rope_theta\": 300.0"},
    {"gemma4", "\"sliding_window\": 6", "\"sliding_window\": 64"},
    {"gemma4", "\"final_logit_softcapping\": 6.0", "\"final_logit_softcapping\": null"},
    {"gemma4_moe", "\"top_k_experts\": 2", "\"top_k_experts\": 1"},
    {"gpt_oss", "\"truncate\": false", "\"truncate\": true"},
    {"gpt_oss", "\"sliding_window\": 6", "\"sliding_window\": 64"},
    {"gpt_oss", "\"sliding_window\": 6", "\"swiglu_limit\": 70, \"sliding_window\": 6"},
    {"ministral3", "\"llama_4_scaling_beta\": 0.5", "\"llama_4_scaling_beta\": 0.0"},
    {"glm4", "\"partial_rotary_factor\": 0.5", "\"partial_rotary_factor\": 1.0"},
    {"glm4_moe", "\"routed_scaling_factor\": 1.5", "\"routed_scaling_factor\": 1.0"},
    {"glm4_moe", "\"norm_topk_prob\": true", "\"norm_topk_prob\": false"},
    {"glm4_moe", "\"topk_group\": 1", "\"topk_group\": 2"},
    {"lfm2", "\"rope_theta\": 300.0", "\"rope_theta\": 30000.0"},
    {"phi3_long", "   3.5", "   1.5"},
    {"phi3_long", "\"original_max_position_embeddings\": 16",
     "\"original_max_position_embeddings\": 32"},
    {"phi3_short", "   1.5", "   3.5"},
    {"qwen3_next", "\"norm_topk_prob\": true", "\"norm_topk_prob\": false"},
    {"deepseek_v3", "\"mscale_all_dim\": 1.0", "\"mscale_all_dim\": 0.5"},
    {"deepseek_v3", "\"rope_interleave\": true", "\"rope_interleave\": false"},
    {"deepseek_v3", "\"topk_group\": 2", "\"topk_group\": 1"},
    {"deepseek_v3_halves", "\"mscale\": 0.5", "\"mscale\": 1.0"},
    {"deepseek_v2", "\"group_limited_greedy\"", "\"greedy\""},
    {"deepseek_v2", "\"topk_group\": 2", "\"topk_group\": 1"},
    {"glm4_moe_lite", "\"routed_scaling_factor\": 1.5", "\"routed_scaling_factor\": 1"}};

// 8 tokens where contexts of more than 16 are long: as vLLM and llama.cpp have it.
TEST(Decoder, TakesTheListOfLongRopeByTheContext) {
  const c10::InferenceMode inference;
  const LoadedModel loaded = load_model(*io::TensorFile::open(family_path("phi3_long")), Group());
  CausalLM& model = *loaded.model;
  const at::Tensor ids_BT = at::arange(8, at::kLong).unsqueeze(0);
  const auto logits_in = [&](int64_t context) {
    nn::KvCache cache = model.make_cache(1, context);
    return model.logits(model.forward(ids_BT, &cache));
  };
  const at::Tensor short_BTV = logits_in(16), long_BTV = logits_in(17);
  EXPECT_TRUE(at::equal(logits_in(8), short_BTV));
  EXPECT_TRUE(at::equal(logits_in(64), long_BTV));
  EXPECT_GT((short_BTV - long_BTV).abs().max().item<double>(), 1e-3);
  const at::Tensor alone_BTV = model.logits(model.forward(ids_BT, nullptr));
  EXPECT_LE((alone_BTV - short_BTV).abs().max().item<double>(), 1e-4);
}

TEST(Decoder, ShowsThatItsGoldensNeedWhatTheyTest) {
  // Each of these changes must move the logits, or the goldens above could not see it missing.
  for (const Change& change : kChanges) {
    const testing::TempDir dir;
    std::filesystem::copy(family_path(change.name), dir.path());
    const std::string config = dir.read("config.json");
    const std::string changed = replaced(config, change.text, change.instead);
    ASSERT_NE(changed, config) << change.name;
    dir.write("config.json", changed);
    const auto expected = test::read_reference(family_path(change.name, "ref.safetensors"));
    const LoadedModel loaded = load_model(*io::TensorFile::open(dir.path()), Group());
    const at::Tensor logits_TV = logits_of(*loaded.model, expected.ids_BT);
    EXPECT_GE((logits_TV - expected.logits_TV).abs().max().item<double>(), 1e-2) << change.name;
  }
}

std::string load_error(const std::string& name, const std::string& text,
                       const std::string& instead) {
  const testing::TempDir dir;
  std::filesystem::copy(family_path(name), dir.path());
  dir.write("config.json", replaced(dir.read("config.json"), text, instead));
  const auto file = io::TensorFile::open(dir.path());
  return replaced(error_text([&] { load_model(*file, Group()); }), file->path(), "FILE");
}

TEST(Decoder, NamesTensorsThatTheConfigurationDoesNotExpect) {
  EXPECT_EQ(load_error("mixtral", "\"num_local_experts\": 4", "\"num_local_experts\": 3"),
            "FormatError: FILE: tensor 'model.layers.0.block_sparse_moe.gate.weight': shape [4, "
            "32], expected [3, 32]; the file and the model's config disagree");
  EXPECT_EQ(
      load_error("qwen3_moe_mixed", "\"decoder_sparse_step\": 1", "\"decoder_sparse_step\": 5")
          .find("FormatError: FILE: missing tensor 'model.layers.0.mlp.gate_proj.weight'"),
      0U);
  EXPECT_EQ(load_error("qwen3", "\"model_type\": \"qwen3\"", "\"model_type\": \"llama\""),
            "FormatError: FILE: 4 tensors that the model does not use, e.g. "
            "[model.layers.0.self_attn.k_norm.weight, model.layers.0.self_attn.q_norm.weight, "
            "model.layers.1.self_attn.k_norm.weight, model.layers.1.self_attn.q_norm.weight]; the "
            "file holds another model");
  EXPECT_EQ(load_error("llama", "\"attention_bias\": false", "\"attention_bias\": true")
                .find("FormatError: FILE: missing tensor 'model.layers.0.self_attn.q_proj.bias'"),
            0U);
  EXPECT_EQ(load_error("llama", "\"model_type\": \"llama\"", "\"model_type\": \"qwen3\"")
                .find("FormatError: FILE: missing tensor "
                      "'model.layers.0.self_attn.q_norm.weight'"),
            0U);
}

TEST(Decoder, CutsExpertsEvenlyOverTheRanks) {
  for (const char* name : {"mixtral", "qwen2_moe", "qwen3_moe"}) {
    for (const std::string& form : forms_of(name)) {
      const auto file = io::TensorFile::open(form);
      for (int64_t n = 1; n <= 4; ++n) {
        const LoadPlan plan = make_plan(*file, n);
        for (const PlannedWeight& weight : plan.weights()) {
          if (weight.rule.split != "expert_ffn") continue;
          uint64_t sum = 0;
          for (int64_t rank = 0; rank < n; ++rank) sum += plan.planned_bytes(weight, rank);
          EXPECT_EQ(sum, static_cast<uint64_t>(2 * weight.rule.out * weight.rule.in))
              << form << " " << weight.rule.name << " over " << n;
        }
      }
    }
  }
}

}  // namespace
}  // namespace weft::models
