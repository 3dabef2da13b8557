#include "weft/train/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/core/error_text.h"

namespace weft::train {
namespace {

using weft::testing::error_text;

Schedule schedule(ScheduleKind kind, int64_t warmup, int64_t total, int64_t decay = 0) {
  Schedule result;
  result.kind = kind;
  result.peak = 2;
  result.warmup_steps = warmup;
  result.total_steps = total;
  result.decay_steps = decay;
  return result;
}

std::vector<double> rates(const Schedule& of, int64_t count) {
  std::vector<double> result;
  for (int64_t step = 0; step < count; ++step) result.push_back(learning_rate(of, step));
  return result;
}

TEST(Schedule, WarmsUpInAStraightLineAndStaysConstant) {
  EXPECT_EQ(rates(schedule(ScheduleKind::kConstant, 4, 0), 7),
            (std::vector<double>{0, 0.5, 1, 1.5, 2, 2, 2}));
  EXPECT_EQ(rates(schedule(ScheduleKind::kConstant, 0, 0), 2), (std::vector<double>{2, 2}));
}

TEST(Schedule, FallsInAStraightLineToTheFinalFraction) {
  Schedule line = schedule(ScheduleKind::kLinear, 2, 6);
  EXPECT_EQ(rates(line, 9), (std::vector<double>{0, 1, 2, 1.5, 1, 0.5, 0, 0, 0}));
  line.final_fraction = 0.5;
  EXPECT_EQ(rates(line, 8), (std::vector<double>{0, 1, 2, 1.75, 1.5, 1.25, 1, 1}));
}

TEST(Schedule, FallsHalfACosineWave) {
  const Schedule wave = schedule(ScheduleKind::kCosine, 0, 4);
  EXPECT_DOUBLE_EQ(learning_rate(wave, 0), 2);
  EXPECT_DOUBLE_EQ(learning_rate(wave, 1), 1 + std::sqrt(0.5));
  EXPECT_DOUBLE_EQ(learning_rate(wave, 2), 1);
  EXPECT_DOUBLE_EQ(learning_rate(wave, 4), 0);
  EXPECT_DOUBLE_EQ(learning_rate(wave, 1000), 0) << "it must not rise again";
}

TEST(Schedule, StaysAndThenDecays) {
  Schedule wsd = schedule(ScheduleKind::kWsd, 1, 8, 4);
  EXPECT_EQ(rates(wsd, 10), (std::vector<double>{0, 2, 2, 2, 2, 1.5, 1, 0.5, 0, 0}));
  wsd.decay = DecayShape::kSqrt;
  EXPECT_EQ(learning_rate(wsd, 5), 1) << "a quarter is over";
  wsd.final_fraction = 0.25;
  EXPECT_EQ(learning_rate(wsd, 5), 1.25);
  EXPECT_EQ(learning_rate(wsd, 8), 0.5);
  EXPECT_EQ(rates(schedule(ScheduleKind::kWsd, 0, 2, 0), 3), (std::vector<double>{2, 2, 0}));
}

// A run that is all warm-up, and one of no steps.
TEST(Schedule, HasNoHolesAtItsEdges) {
  EXPECT_EQ(rates(schedule(ScheduleKind::kLinear, 2, 2), 4), (std::vector<double>{0, 1, 0, 0}));
  EXPECT_EQ(learning_rate(schedule(ScheduleKind::kCosine, 0, 0), 0), 0);
  EXPECT_EQ(rates(schedule(ScheduleKind::kWsd, 2, 4, 2), 5), (std::vector<double>{0, 1, 2, 1, 0}));
}

Schedule from_json(const nlohmann::json& json) {
  const std::string kind = json.at("kind");
  Schedule result = schedule(kind == "constant" ? ScheduleKind::kConstant
                             : kind == "linear" ? ScheduleKind::kLinear
                             : kind == "cosine" ? ScheduleKind::kCosine
                                                : ScheduleKind::kWsd,
                             json.at("warmup"), json.at("total"), json.at("decay"));
  result.peak = json.at("peak");
  result.final_fraction = json.at("final");
  const std::string shape = json.at("shape");
  result.decay = shape == "linear"   ? DecayShape::kLinear
                 : shape == "cosine" ? DecayShape::kCosine
                                     : DecayShape::kSqrt;
  return result;
}

TEST(Schedule, IsThatOfTransformers) {
  std::ifstream file(WEFT_SOURCE_DIR "/tests/train/data/schedules.json");
  const auto cases = nlohmann::json::parse(file);
  ASSERT_GE(cases.size(), 6U);
  for (const auto& each : cases) {
    const Schedule mine = from_json(each);
    const std::vector<double> golden = each.at("rates");
    for (size_t step = 0; step < golden.size(); ++step) {
      EXPECT_NEAR(learning_rate(mine, static_cast<int64_t>(step)), golden[step], 1e-15)
          << each.at("kind") << " " << each.at("shape") << " step " << step;
    }
  }
}

TEST(Schedule, RefusesWhatCannotBe) {
  const auto text = [](const Schedule& bad) { return error_text([&] { check_schedule(bad); }); };
  EXPECT_EQ(text(schedule(ScheduleKind::kCosine, 11, 10)),
            "ConfigError: train.schedule: 11 steps of warm-up and 0 of decay in a run of 10; make "
            "them shorter or the run longer");
  EXPECT_EQ(text(schedule(ScheduleKind::kWsd, 5, 10, 6)),
            "ConfigError: train.schedule: 5 steps of warm-up and 6 of decay in a run of 10; make "
            "them shorter or the run longer");
  EXPECT_EQ(text(schedule(ScheduleKind::kLinear, -1, 10)),
            "ConfigError: train.schedule: expected steps of at least 0, got -1 of warm-up, 0 of "
            "decay, 10 in all");
  Schedule bad = schedule(ScheduleKind::kLinear, 0, 10);
  bad.final_fraction = 1.5;
  EXPECT_EQ(text(bad), "ConfigError: train.schedule: final_fraction: expected 0 to 1, got 1.5");
  bad.final_fraction = 0;
  bad.peak = std::nan("");
  EXPECT_EQ(text(bad),
            "ConfigError: train.schedule: peak: expected a learning rate of at least 0, got nan");
  EXPECT_EQ(error_text([] { learning_rate(Schedule(), -1); }),
            "ConfigError: train.schedule: step: expected at least 0, got -1");
}

}  // namespace
}  // namespace weft::train
