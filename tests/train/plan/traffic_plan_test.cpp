#include "weft/train/plan/traffic_plan.h"

#include <gtest/gtest.h>

#include "tests/train/plan/plan_models.h"

namespace weft::train {
namespace {

// "axis operation: calls, bytes" of each line.
std::vector<std::string> lines_of(const PlanJob& job, int64_t stage = 0) {
  std::vector<std::string> lines;
  for (const CollectivePlan& plan : traffic_plan(job, stage, 0)) {
    lines.push_back(plan.axis + " " + plan.operation + ": " + std::to_string(plan.calls) + ", " +
                    std::to_string(plan.bytes));
  }
  return lines;
}

std::string line(const std::string& what, int64_t calls, int64_t bytes) {
  return what + ": " + std::to_string(calls) + ", " + std::to_string(bytes);
}

using Lines = std::vector<std::string>;

TEST(TrafficPlan, IsNothingOnOneRank) { EXPECT_EQ(lines_of(tiny_job(1, 1)), Lines{}); }

TEST(TrafficPlan, GathersBlocksTwiceAndTheRestOnce) {
  // Runs of 992 and 352 elements; 2 microbatches.
  EXPECT_EQ(lines_of(tiny_job(1, 2)),
            (Lines{line("data all_gather", 2 * 5 + 1, 4 * (2 * 5 * 992 + 352)),
                   line("data reduce_scatter", 2 * 4, 4 * 2 * (3 * 992 + 352))}));
  PlanJob kept = tiny_job(1, 2);
  kept.release_after_forward = false;
  EXPECT_EQ(lines_of(kept)[0], line("data all_gather", 2 * 3 + 1, 4 * (2 * 3 * 992 + 352)));
}

TEST(TrafficPlan, CrossesReplicasOncePerStep) {
  for (const int64_t microbatch : {1, 2, 4}) {
    PlanJob job = tiny_job(2, 1);
    job.microbatch = microbatch;
    EXPECT_EQ(lines_of(job), (Lines{line("replica reduce_scatter", 4, 4 * (3 * 992 + 352)),
                                    line("replica all_gather", 4, 4 * (3 * 992 + 352))}));
  }
}

TEST(TrafficPlan, GathersInTheTypeThatIsComputedInAndReducesInFloat) {
  PlanJob job = tiny_job(2, 2);
  job.dtype_bytes = 2;
  // One microbatch of 2 sequences for each of 4 ranks; runs of 1024 and 384.
  EXPECT_EQ(lines_of(job), (Lines{line("data all_gather", 6, 2 * (5 * 1024 + 384)),
                                  line("data reduce_scatter", 4, 4 * (3 * 1024 + 384)),
                                  line("replica reduce_scatter", 4, 4 * (3 * 512 + 192)),
                                  line("replica all_gather", 4, 2 * (3 * 512 + 192))}));
}

TEST(TrafficPlan, ReducesActivationsOverTheModelAxis) {
  PlanJob job = tiny_job(1, 1, 2);
  // 4 microbatches; per block 4, embedding, head; the loss: 3 floats of each of 20 tokens.
  const int64_t activation = 20 * 16 * 4;
  EXPECT_EQ(
      lines_of(job),
      (Lines{line("model all_reduce", 4 * (3 * 4 + 2 + 2), 4 * (14 * activation + 3 * 20 * 4))}));
  job.checkpoint_activations = true;
  EXPECT_EQ(
      lines_of(job),
      (Lines{line("model all_reduce", 4 * (3 * 6 + 2 + 2), 4 * (20 * activation + 3 * 20 * 4))}));
  job.checkpoint_activations = false;
  job.sequence_parallel = true;
  // Per block 2 gathers forward and 4 backward, 2 and 2 scatters; 7 norms of 16 once per step.
  const int64_t all_reduced = 4 * 3 * 20 * 4 + 7 * 16 * 4;
  EXPECT_EQ(lines_of(job), (Lines{line("model all_gather", 4 * 21, 4 * 21 * activation),
                                  line("model reduce_scatter", 4 * 14, 4 * 14 * activation),
                                  line("model all_reduce", 4 * 2 + 1, all_reduced)}));
  job.checkpoint_activations = true;
  EXPECT_EQ(lines_of(job), (Lines{line("model all_gather", 4 * 27, 4 * 27 * activation),
                                  line("model reduce_scatter", 4 * 20, 4 * 20 * activation),
                                  line("model all_reduce", 4 * 2 + 1, all_reduced)}));
}

TEST(TrafficPlan, SendsActivationsToNeighbouringStages) {
  const PlanJob job = tiny_job(1, 1, 1, 3);
  const int64_t activation = 20 * 16 * 4;
  // And the tied table's gradients, once, between the ends.
  const int64_t table = 20 * 16 * 4;
  EXPECT_EQ(lines_of(job, 0), (Lines{line("pipe send", 4 + 1, 4 * activation + table)}));
  EXPECT_EQ(lines_of(job, 1), (Lines{line("pipe send", 8, 8 * activation)}));
}

TEST(TrafficPlan, GathersTheLastBlockAgainWhileAPipelineFills) {
  PlanJob job = tiny_job(1, 2, 1, 2);
  job.microbatch = 1;
  // Stage 0 has two blocks and the table, 4 microbatches, one of them to fill: runs of 992 and 320.
  EXPECT_EQ(lines_of(job, 0)[0],
            line("data all_gather", 8 + 4 + 1 + 1, 4 * ((8 + 4 + 1) * 992 + 320)));
  // Stage 1 has one block, the norm in a run of 32, and the table.
  EXPECT_EQ(lines_of(job, 1)[0], line("data all_gather", 4 + 2, 4 * (4 * 992 + 32 + 320)));
}

TEST(TrafficPlan, MakesMuonsMatricesWholeOncePerStep) {
  PlanJob job = tiny_job(1, 1, 1);
  job.optimizer.name = "muon";
  EXPECT_EQ(lines_of(job), Lines{});
  job.mesh.tp = 2;
  const Lines lines = lines_of(job);
  ASSERT_EQ(lines.size(), 3U);
  // Seven matrices of 960 elements in each of 3 blocks.
  EXPECT_EQ(lines[1], line("all all_reduce", 3 * 7, 4 * 3 * 960));
  EXPECT_EQ(lines[2], line("all broadcast", 3 * 7, 4 * 3 * 960));
}

TEST(TrafficPlan, CountsWhatARingPutsOnTheWire) {
  CollectivePlan plan;
  plan.bytes = 400;
  plan.operation = "all_gather";
  EXPECT_EQ(bytes_on_wire(plan, 4), 300);
  plan.operation = "all_reduce";
  EXPECT_EQ(bytes_on_wire(plan, 4), 600);
  plan.operation = "send";
  EXPECT_EQ(bytes_on_wire(plan, 4), 400);
}

}  // namespace
}  // namespace weft::train
