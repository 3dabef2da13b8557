// The runs of examples/train in a short form: few steps, and figures that these must reach.
#include <gtest/gtest.h>

#include <chrono>

#include "tests/core/temp_dir.h"
#include "tests/support/run_command.h"

namespace weft {
namespace {

using test::CommandResult;
using testing::TempDir;

CommandResult run_training(const TempDir& dir, const std::string& name,
                           const std::vector<std::string>& flags) {
  std::vector<std::string> command = {"python3", WEFT_SOURCE_DIR "/examples/train/" + name + ".py",
                                      dir.path() + "/" + name, "--weft", WEFT_BINARY_DIR "/weft"};
  command.insert(command.end(), flags.begin(), flags.end());
  test::CommandOptions options;
  options.timeout = std::chrono::minutes(10);
  return test::run_command(command, options);
}

void expect_reached(const CommandResult& result) {
  EXPECT_EQ(result.status, 0) << result.out << result.err;
  EXPECT_TRUE(result.out.ends_with(": reached\n")) << result.out << result.err;
}

TEST(TrainExamples, PretrainsOnAText) {
  const TempDir dir;
  expect_reached(run_training(dir, "pretrain", {"--steps", "60", "--target", "3.5"}));
}

TEST(TrainExamples, LearnsToAdd) {
  const TempDir dir;
  expect_reached(
      run_training(dir, "arithmetic",
                   {"--digits", "2", "--steps", "300", "--target", "90", "--held-out", "40"}));
}

TEST(TrainExamples, TeachesTheInstalledModelAFormat) {
  const TempDir dir;
  expect_reached(run_training(dir, "lora", {"--steps", "10", "--target", "50", "--held-out", "6"}));
}

TEST(TrainExamples, FailBelowTheirFigure) {
  const TempDir dir;
  const CommandResult result = run_training(
      dir, "arithmetic", {"--digits", "2", "--steps", "20", "--target", "90", "--held-out", "4"});
  EXPECT_EQ(result.status, 1) << result.out << result.err;
  EXPECT_TRUE(result.out.ends_with(": NOT reached\n")) << result.out << result.err;
}

}  // namespace
}  // namespace weft
