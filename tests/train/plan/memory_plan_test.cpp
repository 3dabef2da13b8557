#include "weft/train/plan/memory_plan.h"

#include <gtest/gtest.h>

#include "tests/train/config/config_files.h"
#include "tests/train/plan/plan_models.h"
#include "weft/train/config/check_config.h"

namespace weft::train {
namespace {

// Elements of the flat runs: 992 is 62 x 16 and 336 is 21 x 16, padded for the ranks.
TEST(MemoryPlan, KeepsEverythingOnOneRank) {
  const MemoryPlan plan = memory_plan(tiny_job(1, 1), 0, 0);
  EXPECT_EQ(plan.parameters, 4 * (3 * 992 + 336));
  EXPECT_EQ(plan.masters, 0);
  EXPECT_EQ(plan.gradients, 4 * (3 * 992 + 336));
  EXPECT_EQ(plan.optimizer, 8 * (3 * 992 + 336));
  EXPECT_EQ(plan.gathered, 0);
  EXPECT_EQ(plan.gradient_work, 4 * (336 + 992));
}

TEST(MemoryPlan, CutsParametersOverDataAndMomentsOverReplicaToo) {
  // Runs of 1024 and 384 elements for 2 x 2 ranks.
  const MemoryPlan plan = memory_plan(tiny_job(2, 2), 0, 0);
  EXPECT_EQ(plan.parameters, 4 * (3 * 512 + 192));
  EXPECT_EQ(plan.gradients, 4 * (3 * 512 + 192) + 4 * (3 * 256 + 96));
  EXPECT_EQ(plan.optimizer, 8 * (3 * 256 + 96));
  EXPECT_EQ(plan.gathered, 4 * (2 * 1024 + 384));
  EXPECT_EQ(plan.gradient_work, 4 * (336 + 992 + 1024 + 512));
}

// Of four pairs of sequences three gradients are kept at a time, of two pairs both.
TEST(MemoryPlan, KeepsWholeGradientsOfExactRuns) {
  PlanJob job = tiny_job(1, 1);
  job.exact = true;
  const MemoryPlan alone = memory_plan(job, 0, 0);
  EXPECT_EQ(alone.gradients, 4 * (3 * 992 + 336));
  EXPECT_EQ(alone.gradient_work, 3 * 4 * (3 * 992 + 336));
  // Keys and values for four heads in place of two: 20 tokens, 3 blocks.
  EXPECT_EQ(alone.activations, memory_plan(tiny_job(1, 1), 0, 0).activations + 3 * 20 * 4 * 8);
  EXPECT_EQ(alone.ordered_sums, 0);
  job = tiny_job(2, 1);
  job.exact = true;
  EXPECT_EQ(memory_plan(job, 0, 0).gradients, 4 * (3 * 496 + 176));
  EXPECT_EQ(memory_plan(job, 0, 0).gradient_work, 2 * 4 * (3 * 992 + 336));
  job = tiny_job(1, 1, 2);
  job.exact = true;
  // Three sums of 20 tokens, 16 wide, of this rank and as gathered from both.
  EXPECT_EQ(memory_plan(job, 0, 0).ordered_sums, 3 * 3 * 20 * 16 * 4);
}

TEST(MemoryPlan, HasFloatMastersOfHalfParameters) {
  PlanJob job = tiny_job(2, 1);
  job.dtype_bytes = 2;
  // Runs of 992 and 352.
  const MemoryPlan plan = memory_plan(job, 0, 0);
  EXPECT_EQ(plan.parameters, 2 * (3 * 992 + 352));
  EXPECT_EQ(plan.masters, 4 * (3 * 496 + 176));
  EXPECT_EQ(plan.gathered, 0);
}

TEST(MemoryPlan, CountsTheStatesOfEachOptimizer) {
  PlanJob job = tiny_job(1, 1);
  const int64_t elements = 3 * 992 + 336;
  job.optimizer.name = "lion";
  EXPECT_EQ(memory_plan(job, 0, 0).optimizer, 4 * elements);
  job.optimizer.name = "sgd";
  EXPECT_EQ(memory_plan(job, 0, 0).optimizer, 4 * elements);
  job.optimizer.momentum = 0;
  EXPECT_EQ(memory_plan(job, 0, 0).optimizer, 0);
  job.optimizer.name = "adafactor";
  // Rows and columns: q and o 8 + 16, k and v 4 + 16, three of 12 + 16; the table 20 + 16.
  EXPECT_EQ(memory_plan(job, 0, 0).optimizer, 4 * (3 * (2 * 24 + 2 * 20 + 3 * 28) + 36));
}

// Of 992 elements of a block 2 x 16 are norms', of the root all are AdamW's. On two ranks, 496 of a
// block each: the norms lie behind the matrices, on the second, as one half of the root does.
TEST(MemoryPlan, CountsMuonsStatesByWhatTheyAreOf) {
  PlanJob job = tiny_job(1, 1);
  job.optimizer.name = "muon";
  EXPECT_EQ(memory_plan(job, 0, 0).optimizer, 4 * (3 * (992 + 32) + 2 * 336));
  job = tiny_job(1, 2);
  job.optimizer.name = "muon";
  EXPECT_EQ(memory_plan(job, 0, 0).optimizer, 4 * (3 * (496 + 32) + 2 * 176));
}

TEST(MemoryPlan, KeepsWhatBackwardNeeds) {
  PlanJob job = tiny_job(1, 1);
  // 20 tokens. Block: 4 x 16 + 2 (8 + 4) + 3 x 12 elements and 4 heads; head: two of 16, 20 logits.
  const int64_t block = 20 * 4 * (64 + 24 + 36 + 4);
  const int64_t head = 20 * 4 * (2 * 16 + 20);
  EXPECT_EQ(memory_plan(job, 0, 0).activations, 3 * block + head);
  job.checkpoint_activations = true;
  EXPECT_EQ(memory_plan(job, 0, 0).activations, 3 * 20 * 4 * 16 + block + head);
  job.checkpoint_activations = false;
  job.mesh.tp = 2;
  job.sequence_parallel = true;
  const int64_t half = 20 * 4 * (32 + 12 + 18 + 2) * 3 + 20 * 4 * (16 + 10);
  EXPECT_EQ(memory_plan(job, 0, 0).activations, half);
}

TEST(MemoryPlan, FillsAPipelineFromItsFirstStage) {
  const PlanJob job = tiny_job(1, 1, 1, 3);
  const int64_t block = 20 * 4 * (64 + 24 + 36 + 4);
  EXPECT_EQ(job.num_microbatches(), 4);
  // And what was sent on, 16 elements a token.
  const int64_t output = 20 * 4 * 16;
  EXPECT_EQ(memory_plan(job, 0, 0).activations, 3 * (block + output));
  EXPECT_EQ(memory_plan(job, 1, 0).activations, 2 * (block + output));
  const MemoryPlan largest = largest_memory_plan(job);
  for (int64_t stage = 0; stage < 3; ++stage) {
    EXPECT_LE(memory_plan(job, stage, 0).total(), largest.total());
  }
}

TEST(MemoryPlan, FollowsTheConfiguration) {
  TrainConfig config = config_of(kGoodConfig, {{"mesh.dp", "2", "F"},
                                               {"batch.microbatch", "2", "F"},
                                               {"train.dtype", "bfloat16", "F"},
                                               {"train.checkpoint_activations", "true", "F"},
                                               {"model.vocab_size", "100", "F"}});
  complete_model(config);
  const PlanJob job = plan_job(config, sizes_of(config.model));
  EXPECT_EQ(job.num_microbatches(), 2);
  EXPECT_EQ(job.num_tokens(), 256);
  EXPECT_EQ(job.dtype_bytes, 2);
  EXPECT_TRUE(job.checkpoint_activations);
  EXPECT_EQ(job.model.intermediate_size, 192);
}

}  // namespace
}  // namespace weft::train
