#include "weft/train/trainer/run_flops.h"

#include <gtest/gtest.h>

#include "tests/models/family_files.h"
#include "weft/models/load/new_model.h"
#include "weft/train/metrics/flops.h"
#include "weft/train/plan/model_sizes.h"
#include "weft/train/plan/sizes_of_config.h"

namespace weft::train {
namespace {

constexpr int64_t kPositions = 10;

models::ModelConfig golden_config(const std::string& family) {
  return models::read_config(*io::TensorFile::open(test::family_path(family)));
}

// Operations less those of attention over `width` features, by parameter.
double parameters_of(const models::ModelConfig& model, int64_t attention_width) {
  TrainConfig config;
  config.batch.sequence_length = kPositions;
  const double flops = run_flops_per_token(config, model, TrainedPart::kAll);
  return (flops - 12.0 * static_cast<double>(attention_width * kPositions)) / 6;
}

// Of a new model, without tables that are only looked up; a tied one counts once.
int64_t elements_of(const models::ModelConfig& model) {
  int64_t count = model.scales_layers ? model.num_layers : 0;
  for (const auto& parameter : models::make_model(model, {})->named_parameters()) {
    if (!parameter.key().starts_with("model.embed_tokens")) count += parameter.value().numel();
  }
  return count;
}

TEST(RunFlops, CountWhatATokenIsMultipliedBy) {
  for (const char* family : {"llama", "qwen3", "olmo2", "gemma2"}) {
    const models::ModelConfig model = golden_config(family);
    const auto expected = static_cast<double>(num_matmul_parameters(sizes_of(model)));
    const int64_t width = model.num_layers * model.num_heads * model.head_dim;
    EXPECT_EQ(parameters_of(model, width), expected) << family;
  }
}

TEST(RunFlops, CountLayersThatAreUnlikeOthers) {
  // Three layers of heads of 8 features, two of 16.
  const models::ModelConfig gemma = golden_config("gemma4");
  const int64_t width = gemma.num_heads * (3 * 8 + 2 * 16);
  EXPECT_EQ(parameters_of(gemma, width), elements_of(gemma));
  const models::ModelConfig small = golden_config("gemma4_small");
  int64_t small_width = 0;
  for (int64_t layer = 0; layer < small.num_layers; ++layer) {
    small_width += small.num_heads * small.head_dim_of(layer);
  }
  EXPECT_EQ(parameters_of(small, small_width), elements_of(small));
}

TEST(RunFlops, CountTheExpertsOfAToken) {
  models::ModelConfig model = golden_config("qwen3_moe");
  const int64_t width = model.num_layers * model.num_heads * model.head_dim;
  const double before = parameters_of(model, width);
  const models::ExpertsConfig& experts = model.experts;
  int64_t mixtures = 0;
  for (int64_t layer = 0; layer < model.num_layers; ++layer) mixtures += model.has_experts(layer);
  const int64_t unused = mixtures * (experts.num_experts - experts.experts_per_token) * 3 *
                         experts.ffn_width * model.width;
  EXPECT_EQ(before, elements_of(model) - unused);
  model.experts.experts_per_token += 1;
  EXPECT_EQ(parameters_of(model, width) - before, mixtures * 3 * experts.ffn_width * model.width);
}

}  // namespace
}  // namespace weft::train
