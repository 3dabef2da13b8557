// When a run waits for the checkpoint that it writes in the background.
#include <gtest/gtest.h>

#include <csignal>
#include <string>
#include <vector>

#include "tests/core/temp_dir.h"
#include "tests/support/run_ranks.h"
#include "tests/train/checkpoint/trained.h"
#include "weft/core/error.h"
#include "weft/train/trainer/trainer.h"

namespace weft::train {
namespace {

TrainConfig small_run(const std::string& folder) {
  TrainConfig config;
  config.model.hidden_size = 8;
  config.model.num_layers = 1;
  config.model.num_heads = 2;
  config.model.num_kv_heads = 2;
  config.model.head_dim = 4;
  config.model.intermediate_size = 16;
  config.model.max_positions = 8;
  config.batch.sequences = 1;
  config.batch.sequence_length = 8;
  config.train.steps = 9;
  config.schedule.name = "constant";
  config.data.train = {WEFT_SOURCE_DIR "/tests/generate/data/us_constitution.txt"};
  config.data.cache = folder;
  config.checkpoint.every = 3;
  config.checkpoint.is_async = true;
  config.log.peak_flops = 1e9;
  return config;
}

// What a run does, in order: "s3" saves step 3, "p" waits for the writers, "4" tells of step 4.
// The writers have written after as many steps as `steps_of_writing`.
std::string order_of(const dist::World& world, int64_t steps_of_writing, int64_t max_lost) {
  const weft::testing::TempDir dir;
  TrainConfig config = small_run(dir.path());
  config.checkpoint.max_lost = max_lost;
  Trainer trainer(config, world, WEFT_SOURCE_DIR "/examples/train/bytes");
  std::string order;
  int64_t saved = -1;
  TrainerHooks hooks;
  hooks.on_step = [&](const StepMetrics& metrics) { order += core::join(metrics.step, " "); };
  hooks.save = [&] {
    saved = trainer.progress().step;
    order += core::join("s", saved, " ");
  };
  hooks.has_written = [&] {
    return saved >= 0 && trainer.progress().step >= saved + steps_of_writing;
  };
  hooks.publish = [&] {
    order += "p ";
    saved = -1;
  };
  EXPECT_EQ(trainer.run(hooks), 0);
  return order;
}

TEST(CheckpointSteps, ACrashLosesAtMostEverySteps) {
  test::run_ranks(1, [](const dist::World& world) {
    const std::string expected = "1 2 3 s3 p 4 5 6 s6 p 7 8 9 s9 ";
    EXPECT_EQ(order_of(world, 1, 0), expected);
    // Slow writers are waited for in the same place.
    EXPECT_EQ(order_of(world, 2, 0), expected);
    EXPECT_EQ(order_of(world, 100, 0), expected);
  });
}

TEST(CheckpointSteps, ACrashLosesAtMostAsManyAsAllowed) {
  test::run_ranks(1, [](const dist::World& world) {
    EXPECT_EQ(order_of(world, 2, 4), "1 2 3 s3 4 p 5 6 s6 7 p 8 9 s9 ");
    EXPECT_EQ(order_of(world, 100, 4), "1 2 3 s3 4 p 5 6 s6 7 p 8 9 s9 ");
    // A save waits for the one before by itself.
    EXPECT_EQ(order_of(world, 100, 50), "1 2 3 s3 4 5 6 s6 7 8 9 s9 ");
  });
}

// Launchers of several hosts see their own ranks' status alone.
TEST(CheckpointSteps, ASignalToOneRankIsTheReasonOfAll) {
  const weft::testing::TempDir dir;
  const auto body = [&](const dist::World& world) {
    TrainConfig config = small_run(testing::folder_of(dir));
    config.mesh.tp = 2;
    Trainer trainer(config, world, WEFT_SOURCE_DIR "/examples/train/bytes");
    int64_t saved = 0;
    TrainerHooks hooks;
    hooks.caught_signal = [&] {
      return world.rank() == 1 && trainer.progress().step == 2 ? SIGTERM : 0;
    };
    hooks.save = [&] { saved = trainer.progress().step; };
    EXPECT_EQ(trainer.run(hooks), SIGTERM);
    EXPECT_EQ(saved, 2);
  };
  test::run_ranks(2, body, testing::with_folder(dir));
}

}  // namespace
}  // namespace weft::train
