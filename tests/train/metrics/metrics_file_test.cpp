#include "weft/train/metrics/metrics_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/core/error_text.h"
#include "tests/core/temp_dir.h"

namespace weft::train {
namespace {

using weft::testing::error_text;
using weft::testing::replaced;
using weft::testing::TempDir;

StepMetrics step_metrics(int64_t step) {
  StepMetrics metrics;
  metrics.step = step;
  metrics.loss = 1.0 / static_cast<double>(step);
  metrics.grad_norm = 0.5;
  metrics.lr = 3e-4;
  metrics.tokens = 1000 * step;
  metrics.tokens_per_s = 123.5;
  metrics.seconds = 0.25;
  metrics.rss_bytes = 1 << 20;
  return metrics;
}

void append_steps(const std::string& path, int64_t resumed_step, int64_t last) {
  MetricsFile file(path, resumed_step);
  for (int64_t step = resumed_step + 1; step <= last; ++step) file.append(step_metrics(step));
}

std::vector<int64_t> steps_of(const std::string& path) {
  std::vector<int64_t> steps;
  for (const StepMetrics& metrics : read_metrics(path)) steps.push_back(metrics.step);
  return steps;
}

TEST(MetricsFile, GivesBackEveryNumber) {
  const TempDir dir;
  StepMetrics metrics = step_metrics(3);
  metrics.mfu = 0.431;
  metrics.eval_loss = 1.0 / 3;
  MetricsFile(dir.at("m"), 0).append(metrics);
  const auto read = read_metrics(dir.at("m"));
  ASSERT_EQ(read.size(), 1U);
  EXPECT_EQ(read[0].step, 3);
  EXPECT_EQ(read[0].loss, 1.0 / 3);
  EXPECT_EQ(read[0].grad_norm, 0.5);
  EXPECT_EQ(read[0].lr, 3e-4);
  EXPECT_EQ(read[0].tokens, 3000);
  EXPECT_EQ(read[0].tokens_per_s, 123.5);
  EXPECT_EQ(read[0].mfu, 0.431);
  EXPECT_EQ(read[0].seconds, 0.25);
  EXPECT_EQ(read[0].rss_bytes, 1 << 20);
  EXPECT_EQ(read[0].eval_loss, 1.0 / 3);
}

TEST(MetricsFile, HasOneWholeLinePerStepAtAnyTime) {
  const TempDir dir;
  MetricsFile file(dir.at("m"), 0);
  file.append(step_metrics(1));
  const std::string one = dir.read("m");
  EXPECT_EQ(one,
            "{\"grad_norm\":0.5,\"loss\":1.0,\"lr\":0.0003,\"rss_bytes\":1048576,\"seconds\":0.25,"
            "\"step\":1,\"tokens\":1000,\"tokens_per_s\":123.5}\n");
  file.append(step_metrics(2));
  EXPECT_EQ(steps_of(dir.at("m")), (std::vector<int64_t>{1, 2}));
}

TEST(MetricsFile, DropsWhatAResumedRunDoesAgain) {
  const TempDir dir;
  append_steps(dir.at("m"), 0, 5);
  const std::string five = dir.read("m");
  append_steps(dir.at("m"), 3, 3);
  EXPECT_EQ(steps_of(dir.at("m")), (std::vector<int64_t>{1, 2, 3}));
  append_steps(dir.at("m"), 3, 5);
  EXPECT_EQ(dir.read("m"), five);
  append_steps(dir.at("m"), 0, 1);
  EXPECT_EQ(steps_of(dir.at("m")), (std::vector<int64_t>{1}));
  EXPECT_EQ(dir.num_files(), 1U);
}

TEST(MetricsFile, DropsALineThatWasNotFinished) {
  const TempDir dir;
  append_steps(dir.at("m"), 0, 2);
  const std::string two = dir.read("m");
  dir.write("m", two + two.substr(0, 20));
  EXPECT_EQ(steps_of(dir.at("m")), (std::vector<int64_t>{1, 2}));
  append_steps(dir.at("m"), 2, 2);
  EXPECT_EQ(dir.read("m"), two);
}

TEST(MetricsFile, KeepsALossThatIsNoNumber) {
  const TempDir dir;
  StepMetrics metrics = step_metrics(1);
  metrics.loss = std::numeric_limits<double>::quiet_NaN();
  metrics.grad_norm = std::numeric_limits<double>::infinity();
  MetricsFile(dir.at("m"), 0).append(metrics);
  const auto read = read_metrics(dir.at("m"));
  EXPECT_TRUE(std::isnan(read.at(0).loss));
  EXPECT_TRUE(std::isnan(read.at(0).grad_norm));
}

TEST(MetricsFile, NamesTheLineThatIsWrong) {
  const TempDir dir;
  append_steps(dir.at("m"), 0, 1);
  const std::string one = dir.read("m");
  const auto error = [&](const std::string& line) {
    const std::string path = dir.write("m", one + line + "\n");
    return replaced(error_text([&] { read_metrics(path); }), path, "FILE");
  };
  EXPECT_EQ(error("{\"step\": 2}"), "FormatError: FILE:2: missing key \"loss\"");
  EXPECT_EQ(error("[]").rfind("FormatError: FILE:2: expected an object", 0), 0U);
  EXPECT_EQ(error("{").rfind("FormatError: FILE:2: not valid JSON", 0), 0U);
  EXPECT_EQ(error_text([&] { MetricsFile(dir.at("m"), 1); }).rfind("FormatError", 0), 0U);
}

TEST(MetricsFile, LeavesAFileOfSomethingElseAlone) {
  const TempDir dir;
  const std::string documents = "{\"text\": \"What a user trains on.\"}\n";
  const std::string path = dir.write("m", documents);
  EXPECT_EQ(replaced(error_text([&] { MetricsFile(path, 0); }), path, "FILE"),
            "FormatError: FILE:1: missing key \"step\"");
  EXPECT_EQ(dir.read("m"), documents);
}

TEST(MetricsFile, RefusesAFolderThatIsNotThere) {
  const std::string error = error_text([] { MetricsFile("/nowhere/m", 0); });
  EXPECT_EQ(error.rfind("IoError: /nowhere/m: cannot open", 0), 0U) << error;
}

}  // namespace
}  // namespace weft::train
