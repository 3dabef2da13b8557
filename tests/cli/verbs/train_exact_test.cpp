// weft train --exact.
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/cli/verbs/train_runs.h"
#include "weft/train/checkpoint/folder.h"

namespace weft::cli {
namespace {

using testing::TempDir;
using Strings = std::vector<std::string>;

// Losses, norms and those of the evaluation, on other meshes, with other microbatches and resumed
// on another mesh.
TEST(TrainVerb, GivesTheSameBitsOnEveryMeshWithExact) {
  const TempDir dir;
  ASSERT_EQ(train({write_config(dir, "whole"), "--exact"}).status, 0);
  const auto expected = metrics_of(dir, "whole");
  const auto expect_bits = [&](const std::string& name, const Strings& flags, int microbatch = 1) {
    const auto result =
        train(joined({write_config(dir, name, "", 8, microbatch), "--exact"}, flags));
    ASSERT_EQ(result.status, 0) << result.err;
    const auto got = metrics_of(dir, name);
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got[i].loss, expected[i].loss) << name << " step " << i;
      EXPECT_EQ(got[i].grad_norm, expected[i].grad_norm) << name << " step " << i;
      EXPECT_EQ(got[i].eval_loss, expected[i].eval_loss) << name << " step " << i;
    }
  };
  expect_bits("tp4", {"--tp", "4"});
  expect_bits("dp3", {"--dp", "3"}, 4);
  std::filesystem::remove_all(train::checkpoint_path(dir.path() + "/tp4", 8));
  expect_bits("tp4", {"--resume", "--replicas", "2"});
}

// From headers, so that no data are tokenized first.
TEST(TrainVerb, RefusesWhatExactTrainingCannotDoBeforeItReadsData) {
  const TempDir dir;
  const auto olmo = train({write_config(dir, "run", "model.family = \"olmo2\"\n"), "--exact"});
  EXPECT_EQ(olmo.status, 2);
  EXPECT_EQ(olmo.err,
            "weft: ConfigError: models: training with the same bits on any number of ranks: olmo2 "
            "with norms over all heads, norms after layers, expected a model without; leave "
            "train.exact out\n");
  const auto quantized = train({write_measure(dir, "run", kModel), "--exact", "--tp", "2"});
  EXPECT_EQ(quantized.status, 2);
  EXPECT_EQ(quantized.err,
            "weft: ConfigError: models: training with the same bits on any number of ranks: "
            "model.embed_tokens.weight is quantized, expected plain numbers; leave train.exact "
            "out\n");
  EXPECT_FALSE(std::filesystem::exists(dir.path() + "/run"));
}

}  // namespace
}  // namespace weft::cli
