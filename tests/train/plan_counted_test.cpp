// What the plans predict against what train::ShardedModule does.
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <torch/nn/pimpl.h>

#include <utility>

#include "tests/support/run_ranks.h"
#include "tests/train/plan/plan_models.h"
#include "weft/core/error.h"
#include "weft/train/pipeline/pipeline.h"
#include "weft/train/plan/memory_plan.h"
#include "weft/train/plan/traffic_plan.h"
#include "weft/train/psdp/sharded_module.h"

namespace weft::train {
namespace {

// Parameters of the given sizes, each of which counts in the result.
class PartsImpl : public torch::nn::Module {
 public:
  explicit PartsImpl(const std::vector<int64_t>& numels) {
    for (size_t i = 0; i < numels.size(); ++i) {
      register_parameter(core::join("part_", i), at::full({numels[i]}, 1e-3));
    }
  }
  at::Tensor forward(at::Tensor x) {
    // Backward needs the part's values again, as that of a layer does.
    for (const at::Tensor& part : parameters(false)) x = x + x * (part * part).sum();
    return x;
  }
};
TORCH_MODULE(Parts);

// A stage's blocks with something around them, of the sizes that the plan has.
class PlannedModelImpl : public torch::nn::Module {
 public:
  PlannedModelImpl(const PlanJob& job, int64_t stage) {
    const std::vector<UnitSizes> units = unit_sizes(job.model, job.place(stage, 0));
    const int64_t num_blocks = rank_sizes(job.model, job.place(stage, 0)).num_layers;
    for (size_t i = 0; i < units.size(); ++i) {
      const bool is_block = std::cmp_less(i, num_blocks);
      const std::string name =
          units[i].is_shared ? "table" : core::join("stage_", stage, "_unit_", i);
      (is_block ? blocks_ : around_).push_back(register_module(name, Parts(units[i].numels)));
    }
  }
  std::vector<std::shared_ptr<torch::nn::Module>> blocks() const {
    std::vector<std::shared_ptr<torch::nn::Module>> modules;
    for (const Parts& block : blocks_) modules.push_back(block.ptr());
    return modules;
  }
  at::Tensor forward(at::Tensor x) {
    for (const std::vector<Parts>& parts : {around_, blocks_, around_}) {
      for (Parts each : parts) x = each->forward(x);
    }
    return x;
  }

 private:
  std::vector<Parts> around_, blocks_;
};
TORCH_MODULE(PlannedModel);

StageModel stage_of(PlannedModel& model, const PlanJob& job, int64_t stage) {
  const auto options = at::TensorOptions(job.dtype_bytes == 2 ? at::kBFloat16 : at::kFloat);
  const std::vector<int64_t> sizes = {job.num_tokens(), job.model.hidden_size};
  StageModel result;
  result.forward = [=, &model, &job](const Microbatch&, const at::Tensor& x) {
    const at::Tensor y = model->forward(x.defined() ? x : at::ones(sizes, options));
    return stage + 1 == job.mesh.pipe ? y.sum() : y;
  };
  result.make_input = [=](const Microbatch&) { return at::empty(sizes, options); };
  return result;
}

void run_step(ShardedModule& sharded, PlannedModel& model, const PlanJob& job) {
  const StageModel stage = stage_of(model, job, sharded.groups().pipe.rank());
  run_pipeline(sharded, stage, std::vector<Microbatch>(static_cast<size_t>(job.num_microbatches())),
               1);
  sharded.finish_gradients();
  sharded.publish();
}

// Of the kinds that the plan counts in full.
void expect_traffic(const PlanJob& job, const std::string& axis, int64_t stage,
                    const dist::Traffic& counted) {
  dist::Traffic planned;
  for (const CollectivePlan& plan : traffic_plan(job, stage, 0)) {
    if (plan.axis != axis) continue;
    auto& kind = plan.operation == "send"         ? planned.send
                 : plan.operation == "all_gather" ? planned.all_gather
                                                  : planned.reduce_scatter;
    kind = {static_cast<uint64_t>(plan.calls), static_cast<uint64_t>(plan.bytes)};
  }
  EXPECT_EQ(counted.send, planned.send) << axis << " send: " << counted.send.bytes;
  if (axis == "pipe") return;
  EXPECT_EQ(counted.all_gather, planned.all_gather)
      << axis << " all_gather: " << counted.all_gather.calls << ", " << counted.all_gather.bytes;
  EXPECT_EQ(counted.reduce_scatter, planned.reduce_scatter)
      << axis << " reduce_scatter: " << counted.reduce_scatter.bytes;
}

void expect_memory(const PlanJob& job, int64_t stage, const ShardedModule& sharded) {
  const MemoryPlan plan = memory_plan(job, stage, 0);
  uint64_t parameters = 0, masters = 0, gradients = 0, owned = 0;
  for (const auto& unit : sharded.units()) {
    parameters += unit->parameter_bytes();
    masters += unit->master_bytes();
    gradients += unit->gradient_bytes();
    owned += 4 * static_cast<uint64_t>(unit->layout().owned_length());
  }
  if (job.mesh.replicas > 1) gradients += owned;
  EXPECT_EQ(static_cast<uint64_t>(plan.parameters), parameters);
  EXPECT_EQ(static_cast<uint64_t>(plan.masters), masters);
  EXPECT_EQ(static_cast<uint64_t>(plan.gradients), gradients);
  EXPECT_EQ(static_cast<uint64_t>(plan.optimizer), 2 * owned);
  EXPECT_EQ(static_cast<uint64_t>(plan.gathered), sharded.peak_gathered_bytes());
}

ShardOptions options_of(const PlanJob& job) {
  ShardOptions options;
  options.dtype = job.dtype_bytes == 2 ? at::kBFloat16 : at::kFloat;
  options.release_after_forward = job.release_after_forward;
  return options;
}

// One step of a job on as many ranks as its mesh has.
void expect_as_planned(const PlanJob& job) {
  SCOPED_TRACE(core::join("replicas ", job.mesh.replicas, ", dp ", job.mesh.dp, ", pipe ",
                          job.mesh.pipe, ", microbatches ", job.num_microbatches(), ", bytes ",
                          job.dtype_bytes, ", releases ", job.release_after_forward));
  test::run_ranks(static_cast<int>(job.mesh.num_ranks()), [&](const dist::World& world) {
    const dist::Mesh mesh(
        world, {{"replica", job.mesh.replicas}, {"data", job.mesh.dp}, {"pipe", job.mesh.pipe}});
    const int64_t stage = mesh.coordinate("pipe");
    PlannedModel model(job, stage);
    const auto sharded = shard_module(*model, mesh, model->blocks(), options_of(job));
    run_step(*sharded, model, job);
    expect_traffic(job, "data", stage, sharded->groups().data.traffic());
    expect_traffic(job, "replica", stage, sharded->groups().replica.traffic());
    expect_traffic(job, "pipe", stage, sharded->groups().pipe.traffic());
    expect_memory(job, stage, *sharded);
  });
}

PlanJob job_of(int64_t replicas, int64_t dp, int64_t microbatches, int64_t dtype_bytes,
               int64_t pipe = 1) {
  PlanJob job = tiny_job(replicas, dp, 1, pipe);
  job.sequences = replicas * dp * microbatches;
  job.microbatch = 1;
  job.dtype_bytes = dtype_bytes;
  return job;
}

TEST(PlanCounted, AgreesOnEveryMeshWithAnyMicrobatches) {
  for (const auto& [replicas, dp] : {std::pair{2, 2}, {1, 2}, {2, 1}, {1, 3}, {1, 1}}) {
    for (const int64_t microbatches : {1, 4})
      expect_as_planned(job_of(replicas, dp, microbatches, 4));
  }
}

TEST(PlanCounted, AgreesInPipelines) {
  for (const int64_t microbatches : {1, 2, 5}) {
    expect_as_planned(job_of(1, 2, microbatches, 4, 2));
    expect_as_planned(job_of(2, 1, microbatches, 2, 2));
    expect_as_planned(job_of(1, 1, microbatches, 4, 3));
  }
  PlanJob job = job_of(1, 2, 4, 4, 2);
  job.mesh.pipe_layers = {1, 2};
  expect_as_planned(job);
  job.release_after_forward = false;
  expect_as_planned(job);
}

TEST(PlanCounted, AgreesForHalfParameters) { expect_as_planned(job_of(2, 2, 2, 2)); }

TEST(PlanCounted, AgreesWhereBlocksStayGathered) {
  PlanJob job = job_of(1, 2, 2, 4);
  job.release_after_forward = false;
  // All blocks lie gathered at the end of forward.
  EXPECT_EQ(memory_plan(job, 0, 0).gathered, 4 * (3 * 992 + 352));
  expect_as_planned(job);
}

}  // namespace
}  // namespace weft::train
