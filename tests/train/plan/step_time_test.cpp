#include "weft/train/plan/step_time.h"

#include <gtest/gtest.h>

#include "tests/core/error_text.h"
#include "tests/train/plan/plan_models.h"
#include "weft/train/plan/traffic_plan.h"

namespace weft::train {
namespace {

// Round numbers: 1 Gflop/s, 1 MB/s in a host of two ranks, 1 kB/s between hosts.
Hardware round_hardware() {
  Hardware hardware;
  hardware.name = "round";
  hardware.bfloat16_flops = 2e9;
  hardware.float32_flops = 1e9;
  hardware.memory_bytes = 1e6;
  hardware.memory_bandwidth = 1e6;
  hardware.host_bandwidth = 1e6;
  hardware.network_bandwidth = 1e3;
  hardware.ranks_per_host = 2;
  hardware.compute_efficiency = 1;
  hardware.link_efficiency = 1;
  return hardware;
}

// 6 x 3312 parameters + 12 x 3 layers x 8 wide x 10 positions, of 80 tokens.
constexpr double kFlops = (6 * 3312 + 12 * 3 * 8 * 10) * 80;

TEST(StepTime, CountsFlops) { EXPECT_EQ(step_flops(tiny_job(1, 1)), kFlops); }

TEST(StepTime, OfOneRankIsArithmeticAndTheOptimizer) {
  const StepTime time = step_time(tiny_job(1, 1), round_hardware());
  EXPECT_DOUBLE_EQ(time.compute, kFlops / 1e9);
  // Gradient read, master and two moments read and written: 7 floats of each element.
  EXPECT_DOUBLE_EQ(time.optimizer, 7 * 4 * (3 * 992 + 336) / 1e6);
  EXPECT_DOUBLE_EQ(time.total(), time.compute + time.optimizer);
  EXPECT_EQ(time.bound(), "optimizer");
}

TEST(StepTime, UsesTheSpeedOfTheType) {
  PlanJob job = tiny_job(1, 1);
  job.dtype_bytes = 2;
  EXPECT_DOUBLE_EQ(step_time(job, round_hardware()).compute, kFlops / 2e9);
  job.checkpoint_activations = true;
  EXPECT_DOUBLE_EQ(step_time(job, round_hardware()).compute, kFlops / 2e9 * 4 / 3);
}

TEST(StepTime, TakesTheSlowestLinkOfAnAxis) {
  // Half of the bytes cross; 4 ranks on the axis are on two hosts, each with two adapters.
  const double two = 0.5 * 4 * (3 * 992 + 352);
  EXPECT_DOUBLE_EQ(step_time(tiny_job(2, 1), round_hardware()).replica, 2 * two / 1e6);
  const double four = 0.75 * 4 * (3 * 1024 + 384);
  EXPECT_DOUBLE_EQ(step_time(tiny_job(4, 1), round_hardware()).replica, 2 * four / 2e3);
  // Ranks of the model axis are neighbours, so that replicas are on different hosts.
  PlanJob job = tiny_job(2, 1, 2);
  job.sequences = 4;
  const StepTime time = step_time(job, round_hardware());
  EXPECT_EQ(time.bound(), "replica");
  double crossing = 0;
  for (const CollectivePlan& plan : traffic_plan(job, 0, 0)) {
    if (plan.axis == "replica") crossing += bytes_on_wire(plan, 2);
  }
  EXPECT_DOUBLE_EQ(time.replica, crossing / 1e3) << "both of a host's ranks have such a ring";
  EXPECT_DOUBLE_EQ(time.model, (4 * 3 + 2) * 20 * 16 * 4 / 1e6 + 3 * 20 * 4 / 1e6);
}

TEST(StepTime, HidesDataBehindComputation) {
  StepTime time;
  time.compute = 3;
  time.model = 1;
  time.data = 2;
  EXPECT_EQ(time.total(), 4);
  time.data = 5;
  EXPECT_EQ(time.total(), 5);
  EXPECT_EQ(time.bound(), "data");
}

TEST(StepTime, WaitsForThePipelineToFill) {
  const StepTime time = step_time(tiny_job(1, 1, 1, 3), round_hardware());
  EXPECT_DOUBLE_EQ(time.bubble, (time.compute + time.pipe) * 2 / 4);
}

TEST(Hardware, IsFoundByName) {
  EXPECT_EQ(find_hardware("h100").memory_bytes, 80e9);
  EXPECT_EQ(
      weft::testing::error_text([] { find_hardware("h10"); }),
      "ConfigError: hardware: expected one of a100, h100, h200, b200, cpu, got 'h10' (did you "
      "mean 'h100'?)");
  for (const Hardware& hardware : hardware_table()) {
    EXPECT_GT(hardware.bfloat16_flops, hardware.float32_flops) << hardware.name;
    EXPECT_GE(hardware.host_bandwidth, hardware.network_bandwidth) << hardware.name;
    EXPECT_GT(hardware.memory_bandwidth, 0) << hardware.name;
  }
}

}  // namespace
}  // namespace weft::train
