#include "weft/train/plan/model_sizes.h"

#include <gtest/gtest.h>

#include "tests/core/error_text.h"
#include "tests/train/plan/plan_models.h"

namespace weft::train {
namespace {

int64_t elements_of(const ModelSizes& model, const ModelPlace& place) {
  int64_t count = 0;
  for (const UnitSizes& unit : unit_sizes(model, place)) count += unit.num_elements();
  return count;
}

TEST(ModelSizes, CountThePublishedParameters) {
  EXPECT_EQ(num_parameters(smollm2_135m()), 134'515'008);
  EXPECT_EQ(num_parameters(llama3_8b()), 8'030'261'248);
  // Mistral-7B-v0.1, Qwen2-0.5B, Qwen3-0.6B.
  EXPECT_EQ(num_parameters({32000, 4096, 32, 32, 8, 128, 14336, false, false, false}),
            7'241'732'096);
  EXPECT_EQ(num_parameters({151936, 896, 24, 14, 2, 64, 4864, true, true, false}), 494'032'768);
  EXPECT_EQ(num_parameters({151936, 1024, 28, 16, 8, 128, 3072, true, false, true}), 596'049'920);
}

TEST(ModelSizes, CountsAnUntiedEmbeddingAsLookedUp) {
  EXPECT_EQ(num_matmul_parameters(smollm2_135m()), 134'515'008);
  EXPECT_EQ(num_matmul_parameters(llama3_8b()), 8'030'261'248 - 128256LL * 4096);
}

TEST(ModelSizes, GiveAUnitForEachBlockAndOneAround) {
  const auto units = unit_sizes(tiny_model(), {});
  ASSERT_EQ(units.size(), 4U);
  EXPECT_EQ(units[0].num_elements(), 992);
  EXPECT_EQ(units[3].num_elements(), 336);
}

TEST(ModelSizes, AreCutOverTheModelAxis) {
  // Vectors are on both ranks; three ranks need the two kv heads on more than one.
  const int64_t vectors = 7 * 16;
  EXPECT_EQ(elements_of(tiny_model(), {2, 0, 1, 0}) + elements_of(tiny_model(), {2, 1, 1, 0}),
            num_parameters(tiny_model()) + vectors);
  const auto three = unit_sizes(tiny_model(), {3, 0, 1, 0});
  // Heads 0 and 1 of four, which read kv head 0; 4 of 12 columns.
  EXPECT_EQ(three[0].num_elements(), 4 * 16 + 2 * 2 * 16 + 16 * 4 + 3 * 4 * 16 + 2 * 16);
}

TEST(ModelSizes, AreCutOverStages) {
  const ModelPlace first{1, 0, 2, 0}, last{1, 0, 2, 1};
  EXPECT_EQ(unit_sizes(tiny_model(), first).size(), 3U);
  // The tied table is on both, by itself.
  ASSERT_EQ(unit_sizes(tiny_model(), last).size(), 3U);
  EXPECT_EQ(unit_sizes(tiny_model(), first)[2].numels, unit_sizes(tiny_model(), last)[2].numels);
  EXPECT_TRUE(unit_sizes(tiny_model(), last)[2].is_shared);
  EXPECT_FALSE(unit_sizes(tiny_model(), last)[1].is_shared);
  EXPECT_EQ(elements_of(tiny_model(), first) + elements_of(tiny_model(), last),
            num_parameters(tiny_model()) + 20 * 16);
  ModelSizes untied = tiny_model();
  untied.is_tied = false;
  EXPECT_EQ(elements_of(untied, first) + elements_of(untied, last), num_parameters(untied));
}

TEST(ModelSizes, BalanceStagesByWhatATokenIsMultipliedWith) {
  using Layers = std::vector<int64_t>;
  // A block has 3.5 M, the head 28.3 M: eight of them.
  EXPECT_EQ(stage_layers(smollm2_135m(), 2, {}), (Layers{19, 11}));
  EXPECT_EQ(stage_layers(smollm2_135m(), 2, {10, 20}), (Layers{10, 20}));
  EXPECT_EQ(rank_sizes(smollm2_135m(), {1, 0, 2, 1, false, {10, 20}}).num_layers, 20);
  double sum = 0;
  for (int64_t stage = 0; stage < 4; ++stage) {
    const double work = stage_work(smollm2_135m(), {1, 0, 4, stage});
    EXPECT_NEAR(work, 0.25, 0.02);
    sum += work;
  }
  EXPECT_DOUBLE_EQ(sum, 1);
  EXPECT_EQ(weft::testing::error_text([] {
              stage_layers(tiny_model(), 2, {3, 1});
            }),
            "ConfigError: mesh.pipe_layers: expected numbers from 1 that add up to 3, the model's "
            "layers, got [3, 1] (4); leave it out to balance the stages");
}

TEST(ModelSizes, RefuseAVocabularyThatIsNotKnown) {
  EXPECT_EQ(weft::testing::error_text([] { sizes_of(ModelSection()); }),
            "ConfigError: model.vocab_size: is not known; give it or model.tokenizer");
}

}  // namespace
}  // namespace weft::train
