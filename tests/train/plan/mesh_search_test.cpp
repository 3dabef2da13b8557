#include "weft/train/plan/mesh_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/core/error_text.h"
#include "tests/train/plan/plan_models.h"
#include "weft/train/plan/plan_text.h"
#include "weft/train/plan/traffic_plan.h"

namespace weft::train {
namespace {

PlanJob large_job() {
  PlanJob job;
  job.model = llama3_8b();
  job.sequences = 1024;
  job.sequence_length = 8192;
  job.dtype_bytes = 2;
  return job;
}

const MeshSearch& large_search() {
  static const MeshSearch search = search_meshes(large_job(), 1024, find_hardware("h100"), 0);
  return search;
}

TEST(MeshSearch, FindsMeshesThatMultiplyToTheRanks) {
  ASSERT_FALSE(large_search().fitting.empty());
  for (const MeshPlan& plan : large_search().fitting) {
    EXPECT_EQ(plan.job.mesh.num_ranks(), 1024);
    EXPECT_LE(plan.job.mesh.tp, 8);
    EXPECT_LE(static_cast<double>(plan.memory.total()), 72e9);
    EXPECT_EQ(plan.job.num_microbatches() * plan.job.microbatch * plan.job.mesh.num_data_ranks(),
              1024);
  }
}

TEST(MeshSearch, PutsTheFastestFirst) {
  const auto& fitting = large_search().fitting;
  EXPECT_TRUE(std::is_sorted(fitting.begin(), fitting.end(), [](const auto& a, const auto& b) {
    return a.time.total() < b.time.total();
  }));
  // Every mesh is tried with every microbatch: none that fits is faster.
  PlanJob job = fitting[0].job;
  for (job.microbatch = 1; job.microbatch <= job.sequences / job.mesh.num_data_ranks();
       job.microbatch *= 2) {
    const MeshPlan plan = plan_mesh(job, find_hardware("h100"));
    if (static_cast<double>(plan.memory.total()) > 72e9) continue;
    EXPECT_GE(plan.time.total(), fitting[0].time.total());
  }
}

TEST(MeshSearch, TellsWhatDoesNotFitAndWhy) {
  int64_t count = static_cast<int64_t>(large_search().fitting.size());
  std::string reasons;
  for (const RejectedMeshes& each : large_search().rejected) {
    count += each.count;
    reasons += each.reason + "\n";
  }
  // Factors 2^a x 2^b x 2^c of 2^10.
  EXPECT_EQ(count, 66);
  EXPECT_NE(reasons.find("have a model axis longer than a host's 8 ranks"), std::string::npos);
  EXPECT_NE(reasons.find("need more memory than the 72.0 GB that are planned with of 80.0 GB per "
                         "rank; the least, "),
            std::string::npos)
      << reasons;
}

TEST(MeshSearch, KeepsTheMicrobatchAndThePipeThatAreAskedFor) {
  PlanJob job = large_job();
  job.mesh.pipe = 4;
  for (const MeshPlan& plan : search_meshes(job, 64, find_hardware("h100"), 2).fitting) {
    EXPECT_EQ(plan.job.mesh.pipe, 4);
    EXPECT_EQ(plan.job.microbatch, 2);
  }
  job.mesh.pipe = 3;
  EXPECT_EQ(weft::testing::error_text([&] { search_meshes(job, 64, find_hardware("h100"), 0); }),
            "ConfigError: plan: expected ranks that mesh.pipe 3 divides, got 64; change --ranks or "
            "--pipe");
}

TEST(MeshSearch, FindsNothingWhereTheBatchIsTooSmall) {
  PlanJob job = large_job();
  job.sequences = 3;
  const MeshSearch search = search_meshes(job, 1024, find_hardware("h100"), 0);
  EXPECT_TRUE(search.fitting.empty());
  const std::string text = search_text(search, job, find_hardware("h100"), 5);
  EXPECT_NE(text.find("no mesh fits\n\nnot possible\n"), std::string::npos) << text;
  EXPECT_NE(text.find("have replica x data ranks that don't divide batch.sequences 3"),
            std::string::npos);
}

TEST(PlanText, ShowsTheTableAndTheFastestInFull) {
  const std::string text = search_text(large_search(), large_job(), find_hardware("h100"), 3);
  EXPECT_EQ(
      text.rfind("model   8.03 G parameters, bfloat16\nbatch   1,024 x 8,192 tokens\nranks  ", 0),
      0U)
      << text;
  EXPECT_NE(text.find("\nreplica  data  pipe  model  "), std::string::npos) << text;
  EXPECT_NE(text.find("\nthe fastest: replica "), std::string::npos);
  EXPECT_NE(text.find("memory of a rank\n"), std::string::npos);
  EXPECT_NE(text.find("\nnot possible\n"), std::string::npos);
}

TEST(PlanText, HeadsARun) {
  EXPECT_EQ(run_header(tiny_job(2, 2)),
            "model   3.31 k parameters in 3 layers; 1.66 k per rank, updated by a rank 828\n"
            "mesh    replica 2 x data 2 x pipe 1 x model 1 = 4 ranks\n"
            "batch   8 x 10 = 80 tokens a step; 1 microbatches of 2 sequences per data rank\n"
            "memory  80.3 kB per rank predicted: parameters 6.91 kB, gradients 10.4 kB, optimizer "
            "6.91 kB, gathered 9.73 kB, gradient_work 11.5 kB, activations 34.9 kB\n");
}

TEST(PlanText, HoldsTheSameNumbersAsJson) {
  const core::Json json = search_json(large_search(), large_job(), find_hardware("h100"), 2);
  ASSERT_EQ(json["meshes"].size(), 2U);
  const core::Json& first = json["meshes"][0];
  const MeshPlan& plan = large_search().fitting[0];
  EXPECT_EQ(first["dp"], plan.job.mesh.dp);
  EXPECT_EQ(first["memory_bytes"], plan.memory.total());
  EXPECT_EQ(first["memory"]["optimizer"], plan.memory.optimizer);
  EXPECT_EQ(first["collectives"].size(), traffic_plan(plan.job, 0, 0).size());
  EXPECT_EQ(json["num_fitting"], large_search().fitting.size());
  EXPECT_GT(first["mfu"], 0.1);
  EXPECT_LT(first["mfu"], 0.5);
}

}  // namespace
}  // namespace weft::train
