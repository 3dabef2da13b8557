// What a run is refused for before it reads data or weights.
#include "weft/train/trainer/check_run.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "tests/core/error_text.h"
#include "tests/models/family_files.h"
#include "weft/core/error.h"
#include "weft/models/load/load.h"
#include "weft/nn/linear/adapt.h"

namespace weft::train {
namespace {

using weft::testing::error_text;
using weft::testing::replaced;

// A run from a file of a family's golden checkpoint.
TrainConfig run_from(const std::string& family, const std::string& file = "model.safetensors") {
  TrainConfig config;
  config.model.from = test::family_path(family, file);
  config.batch.sequence_length = 8;
  return config;
}

std::string refusal(const TrainConfig& config, TrainedPart part, int64_t vocab_size = 0) {
  return replaced(error_text([&] { check_run(config, part, vocab_size); }), config.model.from,
                  "MODEL");
}

// Small floats and codebooks become plain numbers when they are read, blocks and integers don't.
TEST(CheckRun, RefusesToTrainWhatIsQuantized) {
  for (const char* family : {"llama", "mixtral", "qwen3_fp8", "llama_nf4"}) {
    EXPECT_EQ(refusal(run_from(family), TrainedPart::kAll), "no error") << family;
  }
  for (const TrainConfig& config : {run_from("mixtral_q8_0", "model.gguf"), run_from("mixtral_mlx"),
                                    run_from("gpt_oss_mxfp4"), run_from("qwen3_int4")}) {
    const std::string error = refusal(config, TrainedPart::kAll);
    EXPECT_TRUE(error.starts_with("ConfigError: model.from: MODEL: model.")) << error;
    EXPECT_TRUE(
        error.ends_with("weight is quantized, expected plain numbers; train adapters "
                        "beside it with weft lora, or have weft convert write it as bf16 first"))
        << error;
    EXPECT_EQ(refusal(config, TrainedPart::kAdapters), "no error") << config.model.from;
  }
}

TEST(CheckRun, RefusesSequencesThatAreLongerThanTheModelKnows) {
  for (const TrainedPart part : {TrainedPart::kAll, TrainedPart::kAdapters}) {
    TrainConfig config = run_from("llama");
    config.batch.sequence_length = 64;
    EXPECT_EQ(refusal(config, part), "no error");
    config.batch.sequence_length = 65;
    EXPECT_EQ(refusal(config, part),
              "ConfigError: batch.sequence_length: expected at most the 64 positions of MODEL, got "
              "65; use shorter sequences");
  }
}

TEST(CheckRun, RefusesAVocabularyThatIsSmallerThanTheTokenizers) {
  TrainConfig config = run_from("llama");
  EXPECT_EQ(refusal(config, TrainedPart::kAll, 101), "no error");
  EXPECT_EQ(refusal(config, TrainedPart::kAll, 102),
            "ConfigError: model.tokenizer: 102 tokens, expected at most the 101 of MODEL; leave it "
            "out to use the model's own");
  config = TrainConfig();
  config.model.hidden_size = 16;
  config.model.intermediate_size = 32;
  config.model.num_layers = 1;
  config.model.num_heads = 2;
  config.model.max_positions = 8;
  EXPECT_EQ(error_text([&] { check_run(config, TrainedPart::kAll, 259); }), "no error");
  config.model.vocab_size = 259;
  EXPECT_EQ(error_text([&] { check_run(config, TrainedPart::kAll, 259); }), "no error");
  config.model.vocab_size = 258;
  EXPECT_EQ(error_text([&] { check_run(config, TrainedPart::kAll, 259); }),
            "ConfigError: model.vocab_size: expected at least the tokenizer's 259 tokens, got 258; "
            "leave it out to have as many rows");
}

std::string refused_targets(TrainConfig config, const std::vector<std::string>& targets) {
  config.lora.targets = targets;
  return refusal(config, TrainedPart::kAdapters);
}

// Headers say which layers there are: the same as the modules do, in all families.
TEST(CheckRun, KnowsTheLayersThatCanHaveAdapters) {
  for (const std::string& family : test::kFamilyCheckpoints) {
    SCOPED_TRACE(family);
    const TrainConfig config = run_from(family);
    const auto file = io::TensorFile::open(config.model.from);
    std::set<std::string> held;
    for (const auto& linear : nn::find_linears(*models::load_model(*file, {}).model)) {
      held.insert(linear.path);
    }
    EXPECT_EQ(refused_targets(config, {held.begin(), held.end()}), "no error");
    const models::LoadPlan plan = models::make_plan(*file, 1);
    for (const auto& weight : plan.weights()) {
      const std::string path = weight.rule.base();
      if (weight.rule.is_vector() || held.contains(path)) continue;
      EXPECT_TRUE(refused_targets(config, {path}).starts_with("ConfigError: lora.targets: "))
          << path;
    }
  }
}

TEST(CheckRun, RefusesAdaptersOfLayersThatAreNotThere) {
  EXPECT_EQ(refused_targets(run_from("mixtral"), {"q_proj", "up_proj"}),
            "ConfigError: lora.targets: MODEL has no layer 'up_proj', expected some of "
            "[embed_tokens, gate, k_proj, lm_head, o_proj, q_proj, v_proj, w1, w2, w3]");
  EXPECT_EQ(refused_targets(run_from("llama"), {}),
            "ConfigError: lora.targets: expected one or more of [down_proj, embed_tokens, "
            "gate_proj, k_proj, lm_head, o_proj, q_proj, up_proj, v_proj], got none");
}

TEST(CheckRun, RefusesAStageWithoutAdapters) {
  TrainConfig config = run_from("llama");
  config.mesh.pipe = 2;
  EXPECT_EQ(refused_targets(config, {"q_proj", "lm_head"}), "no error");
  EXPECT_EQ(refused_targets(config, {"lm_head"}),
            "ConfigError: lora.targets: stage 0 of mesh.pipe 2 has none of [lm_head], expected one "
            "at least on each stage; name one that every layer has, or use fewer stages");
  EXPECT_EQ(refused_targets(config, {"layers.1.self_attn.q_proj", "embed_tokens"}), "no error");
}

TEST(CheckRun, RefusesToQuantizeWhatIsQuantized) {
  TrainConfig config = run_from("qwen3_int4");
  EXPECT_EQ(refusal(config, TrainedPart::kAdapters), "no error");
  config.lora.quantize_bits = 4;
  EXPECT_EQ(refusal(config, TrainedPart::kAdapters),
            "ConfigError: lora.quantize_bits: expected 0 for MODEL, whose "
            "model.layers.0.self_attn.q_proj.weight is quantized already, got 4; leave it out");
  config.model.from = test::family_path("qwen3_fp8", "model.safetensors");
  EXPECT_EQ(refusal(config, TrainedPart::kAdapters), "no error");
}

}  // namespace
}  // namespace weft::train
