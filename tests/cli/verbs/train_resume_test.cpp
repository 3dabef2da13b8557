// weft train --resume: from a checkpoint as if the run had not ended, and what it refuses.
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>

#include "tests/cli/processes.h"
#include "tests/cli/verbs/train_runs.h"
#include "tests/cli/weft_command.h"
#include "tests/core/error_text.h"
#include "tests/core/temp_dir.h"
#include "weft/core/files/file.h"
#include "weft/train/checkpoint/folder.h"

namespace weft::cli {
namespace {

using testing::TempDir;
using Strings = std::vector<std::string>;

std::string checkpoint_bytes(const TempDir& dir, const std::string& name) {
  const auto folder = train::find_latest(dir.path() + "/" + name);
  return folder ? core::read_text_file(*folder + "/rank-00000.safetensors", 1 << 30) : "";
}

// Both runs have these steps, with the same bits in their losses and last checkpoints.
void expect_same_runs(const TempDir& dir, const std::string& one, const std::string& other,
                      size_t steps) {
  const auto expected = metrics_of(dir, one);
  const auto got = metrics_of(dir, other);
  ASSERT_EQ(got.size(), steps);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i].loss, expected[i].loss) << i;
  EXPECT_TRUE(checkpoint_bytes(dir, other) == checkpoint_bytes(dir, one));
}

// Killed in the middle and resumed: the same bits as without.
TEST(TrainVerb, ResumesBitForBitAfterAKillAndOnAnotherMesh) {
  const TempDir dir;
  const Strings mesh = {"--dp", "2"};
  ASSERT_EQ(train(joined({write_config(dir, "whole", "", 12)}, mesh)).status, 0);
  const std::string config = write_config(dir, "cut", "", 12);
  {
    test::BackgroundCommand run(joined({kWeft, "train", config}, mesh));
    ASSERT_TRUE(run.wait_for_output("step  6/12"));
    for (const auto& [rank, pid] : ranks_of(run.pid())) ::kill(pid, SIGKILL);
  }
  const auto resumed = train(joined({config, "--resume"}, mesh));
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  expect_same_runs(dir, "whole", "cut", 12);

  std::filesystem::remove_all(train::checkpoint_path(dir.path() + "/cut", 12));
  const auto other = train({config, "--resume", "--tp", "2"});
  ASSERT_EQ(other.status, 0) << other.err;
  EXPECT_NEAR(metrics_of(dir, "cut").back().loss, metrics_of(dir, "whole").back().loss, 1e-4);
}

// What is dropped follows from the step: a resumed run drops the same.
TEST(TrainVerb, ResumesDropoutBitForBit) {
  const TempDir dir;
  const std::string more = "train.dropout = 0.2\nschedule.name = \"constant\"\n";
  const Strings mesh = {"--dp", "2"};
  ASSERT_EQ(train(joined({write_config(dir, "whole", more)}, mesh)).status, 0);
  ASSERT_EQ(train(joined({write_config(dir, "cut", more, 4)}, mesh)).status, 0);
  const auto resumed = train(joined({write_config(dir, "cut", more), "--resume"}, mesh));
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  expect_same_runs(dir, "whole", "cut", 8);
}

// The same of stages, whose checkpoint is one of the whole model, with the tied table once.
TEST(TrainVerb, ResumesStagesBitForBitAndOnOtherMeshes) {
  const TempDir dir;
  const Strings mesh = {"--pipe", "2"};
  ASSERT_EQ(train(joined({write_config(dir, "whole", "", 8)}, mesh)).status, 0);
  const std::string config = write_config(dir, "cut", "", 8);
  {
    test::BackgroundCommand run(joined({kWeft, "train", config}, mesh));
    ASSERT_TRUE(run.wait_for_output("step 5/8"));
    for (const auto& [rank, pid] : ranks_of(run.pid())) ::kill(pid, SIGKILL);
  }
  const auto expected = metrics_of(dir, "whole");
  const auto resume = [&](const Strings& flags) {
    std::filesystem::remove_all(train::checkpoint_path(dir.path() + "/cut", 8));
    const auto result = train(joined({config, "--resume"}, flags));
    EXPECT_EQ(result.status, 0) << result.err;
    return metrics_of(dir, "cut").back();
  };
  EXPECT_EQ(resume(mesh).loss, expected.back().loss);
  EXPECT_TRUE(checkpoint_bytes(dir, "cut") == checkpoint_bytes(dir, "whole"));
  EXPECT_NEAR(resume({"--tp", "2"}).loss, expected.back().loss, 1e-4);
  EXPECT_NEAR(resume({"--pipe", "2", "--replicas", "2"}).loss, expected.back().loss, 1e-4);

  const std::string out = dir.path() + "/model";
  ASSERT_EQ(weft({"convert", dir.path() + "/whole", out}).status, 0);
  const auto measured =
      weft_json({"perplexity", out, "--file", kConstitution, "--json", "--ctx-size", "32"});
  EXPECT_NEAR(measured.at("mean_loss").get<double>(), expected.back().eval_loss.value_or(-1), 0.3);
}

double last_eval(const TempDir& dir, const std::string& name) {
  return metrics_of(dir, name).back().eval_loss.value_or(-1);
}

TEST(TrainVerb, BeginsOrResumesByItselfAndGoesBackToAnOlderCheckpoint) {
  const TempDir dir;
  const std::string config = write_config(dir, "run");
  const auto begun = train({config, "--resume=auto"});
  ASSERT_EQ(begun.status, 0) << begun.err;
  const auto expected = metrics_of(dir, "run");
  const auto back = train({config, "--resume=4"});
  ASSERT_EQ(back.status, 0) << back.err;
  EXPECT_NE(back.err.find("resumed: a newer checkpoint is kept as left-step-000008\n"),
            std::string::npos)
      << back.err;
  const auto got = metrics_of(dir, "run");
  ASSERT_EQ(got.size(), 8U);
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i].loss, expected[i].loss) << i;
  EXPECT_EQ(train::list_checkpoints(dir.path() + "/run"), (std::vector<int64_t>{4, 8}));
  const auto on = train({config, "--resume=auto", "--steps", "9"});
  ASSERT_EQ(on.status, 0) << on.err;
  EXPECT_NE(on.err.find("resumed: train.steps: 9, was 8\n"), std::string::npos) << on.err;
  EXPECT_EQ(metrics_of(dir, "run").size(), 9U);
  const auto none = train({config, "--resume=5"});
  EXPECT_EQ(none.status, 2);
  EXPECT_EQ(none.err, "weft: ConfigError: --resume: '" + dir.path() +
                          "/run' has no complete checkpoint of step 5; it has: 8, 9\n");
}

TEST(TrainVerb, SaysOrRefusesWhatAResumedRunChanges) {
  const TempDir dir;
  ASSERT_EQ(train({write_config(dir, "run", "", 4)}).status, 0);
  const auto resume = [&](const std::string& from, const std::string& to) {
    std::string text = core::read_text_file(write_config(dir, "run", "", 4), 1 << 20);
    text = weft::testing::replaced(text, from, to);
    return train({dir.write("run.toml", text), "--resume"});
  };
  const auto seed = resume("train.seed = 3", "train.seed = 4");
  EXPECT_EQ(seed.status, 2);
  EXPECT_EQ(weft::testing::replaced(seed.err, dir.path(), "DIR"),
            "weft: ConfigError: DIR/run.toml:9:14: train.seed: DIR/run/checkpoints/step-000004 has "
            "3, got 4; a run keeps it, begin a new run to change it\n");
  const auto length = resume("batch.sequence_length = 32", "batch.sequence_length = 16");
  EXPECT_NE(length.err.find("batch.sequence_length: "), std::string::npos) << length.err;
  EXPECT_EQ(length.status, 2) << length.err;
  const std::string others = dir.write("others.txt", std::string(4000, 'a'));
  for (const std::string& instead :
       {std::string("data.eval_fraction = 0.2"), "data.eval = [\"" + others + "\"]"}) {
    const auto split = resume("data.eval_fraction = 0.1", instead);
    EXPECT_EQ(split.status, 2) << split.err;
    EXPECT_NE(split.err.find("data.eval_fraction: " + dir.path() +
                             "/run/checkpoints/step-000004 has 0.1, got 0"),
              std::string::npos)
        << split.err;
  }
  const auto optimizer = resume("optimizer.lr", "optimizer.name = \"lion\"\noptimizer.lr");
  EXPECT_EQ(optimizer.status, 2) << optimizer.err;
  const auto rate = resume("optimizer.lr = 5e-3", "optimizer.lr = 4e-3");
  EXPECT_EQ(rate.status, 0) << rate.err;
  EXPECT_NE(rate.err.find("resumed: optimizer.lr: 0.004, was 0.005\n"), std::string::npos)
      << rate.err;
}

}  // namespace
}  // namespace weft::cli
