// What the plans predict against what train::ShardedModule does.
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <torch/nn/pimpl.h>

#include "tests/support/run_ranks.h"
#include "tests/train/plan/plan_models.h"
#include "weft/core/error.h"
#include "weft/models/deferred_model.h"
#include "weft/train/plan/memory_plan.h"
#include "weft/train/plan/traffic_plan.h"
#include "weft/train/psdp/sharded_module.h"
#include "weft/train/trainer/run_optimizer.h"

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

// Blocks with something before and behind, of the sizes that the plan has.
class PlannedModelImpl : public torch::nn::Module {
 public:
  explicit PlannedModelImpl(const std::vector<UnitSizes>& units)
      : root_(register_module("root", Parts(units.back().numels))) {
    for (size_t i = 0; i + 1 < units.size(); ++i) {
      blocks_.push_back(register_module(core::join("block_", i), Parts(units[i].numels)));
    }
  }
  std::vector<std::shared_ptr<torch::nn::Module>> blocks() const {
    std::vector<std::shared_ptr<torch::nn::Module>> modules;
    for (const Parts& block : blocks_) modules.push_back(block.ptr());
    return modules;
  }
  at::Tensor forward(const at::Tensor& input) {
    at::Tensor x = root_->forward(input);
    for (Parts& block : blocks_) x = block->forward(x);
    return root_->forward(x).sum();
  }

 private:
  Parts root_;
  std::vector<Parts> blocks_;
};
TORCH_MODULE(PlannedModel);

void run_step(ShardedModule& sharded, PlannedModel& model, const PlanJob& job) {
  const auto options = at::TensorOptions(job.dtype_bytes == 2 ? at::kBFloat16 : at::kFloat);
  for (int64_t i = 0; i < job.num_microbatches(); ++i) {
    sharded.backward(model->forward(at::ones({1}, options)));
  }
  sharded.finish_gradients();
  sharded.publish();
}

void expect_traffic(const PlanJob& job, const std::string& axis, const dist::Traffic& counted) {
  dist::Traffic planned;
  for (const CollectivePlan& plan : traffic_plan(job, 0, 0)) {
    if (plan.axis != axis) continue;
    auto& kind = plan.operation == "all_gather" ? planned.all_gather : planned.reduce_scatter;
    kind = {static_cast<uint64_t>(plan.calls), static_cast<uint64_t>(plan.bytes)};
  }
  EXPECT_EQ(counted.all_gather, planned.all_gather)
      << axis << " all_gather: " << counted.all_gather.bytes;
  EXPECT_EQ(counted.reduce_scatter, planned.reduce_scatter)
      << axis << " reduce_scatter: " << counted.reduce_scatter.bytes;
}

void expect_memory(const PlanJob& job, const ShardedModule& sharded) {
  const MemoryPlan plan = memory_plan(job, 0, 0);
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

// One step of a job on as many ranks as its mesh has.
void expect_as_planned(const PlanJob& job) {
  SCOPED_TRACE(core::join("replicas ", job.mesh.replicas, ", dp ", job.mesh.dp, ", microbatches ",
                          job.num_microbatches(), ", bytes ", job.dtype_bytes, ", releases ",
                          job.release_after_forward));
  test::run_ranks(static_cast<int>(job.mesh.num_ranks()), [&](const dist::World& world) {
    const dist::Mesh mesh(world, {{"replica", job.mesh.replicas}, {"data", job.mesh.dp}});
    PlannedModel model(unit_sizes(job.model, {}));
    ShardOptions options;
    options.dtype = job.dtype_bytes == 2 ? at::kBFloat16 : at::kFloat;
    options.release_after_forward = job.release_after_forward;
    const auto sharded = shard_module(*model, mesh, model->blocks(), options);
    run_step(*sharded, model, job);
    expect_traffic(job, "data", sharded->groups().data.traffic());
    expect_traffic(job, "replica", sharded->groups().replica.traffic());
    expect_memory(job, *sharded);
  });
}

PlanJob job_of(int64_t replicas, int64_t dp, int64_t microbatches, int64_t dtype_bytes) {
  PlanJob job = tiny_job(replicas, dp);
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

TEST(PlanCounted, AgreesForHalfParameters) { expect_as_planned(job_of(2, 2, 2, 2)); }

TEST(PlanCounted, AgreesWhereBlocksStayGathered) {
  PlanJob job = job_of(1, 2, 2, 4);
  job.release_after_forward = false;
  // All blocks lie gathered at the end of forward.
  const uint64_t all = 4 * (3 * 992 + 352);
  test::run_ranks(2, [&](const dist::World& world) {
    const dist::Mesh mesh(world, {{"data", 2}});
    PlannedModel model(unit_sizes(job.model, {}));
    ShardOptions options;
    options.release_after_forward = false;
    const auto sharded = shard_module(*model, mesh, model->blocks(), options);
    run_step(*sharded, model, job);
    expect_traffic(job, "data", sharded->groups().data.traffic());
    EXPECT_EQ(sharded->peak_gathered_bytes(), all);
    EXPECT_EQ(memory_plan(job, 0, 0).gathered, static_cast<int64_t>(all));
  });
}

models::ModelConfig decoder_config(const ModelSizes& sizes) {
  models::ModelConfig config;
  config.family = "llama";
  config.vocab_size = sizes.vocab_size;
  config.width = sizes.hidden_size;
  config.num_layers = sizes.num_layers;
  config.num_heads = sizes.num_heads;
  config.num_kv_heads = sizes.num_kv_heads;
  config.head_dim = sizes.head_dim;
  config.ffn_width = sizes.intermediate_size;
  config.max_positions = 10;
  config.is_tied = sizes.is_tied;
  return config;
}

dist::OperationTraffic since(const dist::OperationTraffic& after,
                             const dist::OperationTraffic& before) {
  return {after.calls - before.calls, after.bytes - before.bytes};
}

// A step of the optimizer alone; the states of the rank that has most of them.
void expect_muon_as_planned(const PlanJob& job, const ShardedModule& sharded) {
  const dist::Group& all = sharded.groups().all;
  TrainConfig config;
  config.optimizer = job.optimizer;
  const auto optimizer = make_run_optimizer(config, sharded);
  const dist::Traffic before = all.traffic();
  optimizer->step(0.1, 1);
  for (const CollectivePlan& plan : traffic_plan(job, 0, 0)) {
    if (plan.axis != "all") continue;
    const auto kind =
        plan.operation == "broadcast" ? &dist::Traffic::broadcast : &dist::Traffic::all_reduce;
    const dist::OperationTraffic counted = since(all.traffic().*kind, before.*kind);
    EXPECT_EQ(counted.calls, static_cast<uint64_t>(plan.calls)) << plan.operation;
    EXPECT_EQ(counted.bytes, static_cast<uint64_t>(plan.bytes)) << plan.operation;
  }
  at::Tensor states = at::zeros({1}, at::kLong);
  for (const StateTensor& each : optimizer->state()) {
    if (each.state != "master") states += static_cast<int64_t>(each.values.nbytes());
  }
  all.all_reduce(states, dist::ReduceOp::kMax);
  const int64_t planned = memory_plan(job, 0, 0).optimizer;
  EXPECT_LE(states.item<int64_t>(), planned);
  // Padding is planned for, and has no state.
  const int64_t padding = 8 * FlatLayout::kAlignment * 4 * job.mesh.num_data_ranks();
  EXPECT_GE(states.item<int64_t>(), planned - padding);
}

// The decoder itself, whose matrices have their names and sizes.
TEST(PlanCounted, AgreesForMuon) {
  for (const auto& [replicas, dp, tp] : {std::array<int64_t, 3>{2, 2, 1}, {1, 2, 2}}) {
    PlanJob job = tiny_job(replicas, dp, tp);
    job.optimizer.name = "muon";
    test::run_ranks(static_cast<int>(job.mesh.num_ranks()), [&](const dist::World& world) {
      const dist::Mesh mesh(
          world, {{"replica", job.mesh.replicas}, {"data", job.mesh.dp}, {"model", job.mesh.tp}});
      const auto deferred =
          models::defer_model(decoder_config(job.model), mesh.group({"model"}), {});
      ShardOptions options;
      options.values = deferred.values;
      const auto sharded = shard_module(*deferred.model, mesh, deferred.model->blocks(), options);
      expect_muon_as_planned(job, *sharded);
    });
  }
}

}  // namespace
}  // namespace weft::train
