// What a run is refused for before it reads data or weights.
#include "weft/train/trainer/check_run.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/core/error_text.h"
#include "tests/models/family_files.h"
#include "weft/core/error.h"

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

}  // namespace
}  // namespace weft::train
