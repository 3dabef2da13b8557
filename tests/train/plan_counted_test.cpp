// What the plans predict against what train::ShardedModule does.
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>
#include <torch/nn/pimpl.h>

#include <array>
#include <utility>

#include "tests/support/run_ranks.h"
#include "tests/train/plan/plan_models.h"
#include "weft/core/error.h"
#include "weft/models/config/families.h"
#include "weft/models/load/deferred_model.h"
#include "weft/models/load/new_model.h"
#include "weft/train/pipeline/pipeline.h"
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

models::ModelConfig counted_config(const ModelSizes& sizes) {
  models::ModelConfig config;
  config.family = "llama";
  config.vocab_size = sizes.vocab_size;
  config.width = sizes.hidden_size;
  config.num_layers = sizes.num_layers;
  config.num_heads = sizes.num_heads;
  config.num_kv_heads = sizes.num_kv_heads;
  config.head_dim = sizes.head_dim;
  config.ffn_width = sizes.intermediate_size;
  config.max_positions = 32;
  config.is_tied = sizes.is_tied;
  if (sizes.has_norms_over_heads) {
    config.family = "olmo2";
    models::take_family_traits(config);
  }
  return config;
}

dist::OperationTraffic since(const dist::OperationTraffic& after,
                             const dist::OperationTraffic& before) {
  return {after.calls - before.calls, after.bytes - before.bytes};
}

dist::Traffic since(const dist::Traffic& after, const dist::Traffic& before) {
  dist::Traffic traffic;
  traffic.all_reduce = since(after.all_reduce, before.all_reduce);
  traffic.all_gather = since(after.all_gather, before.all_gather);
  traffic.reduce_scatter = since(after.reduce_scatter, before.reduce_scatter);
  return traffic;
}

// What a step of a real model sends over the model axis.
dist::Traffic model_traffic(const dist::World& world, const PlanJob& job) {
  const dist::Mesh mesh(world, {{"data", 1}, {"model", 2}});
  const auto model = models::make_model(counted_config(job.model), mesh_groups(mesh).model);
  models::TrainingOptions training;
  training.checkpointed.assign(model->blocks().size(), job.checkpoint_activations);
  training.sequence_parallel = job.sequence_parallel;
  model->set_training(training);
  ShardOptions options;
  options.partial_gradients = model->partial_parameters();
  const auto sharded = shard_module(*model, mesh, model->blocks(), options);
  const dist::Traffic before = sharded->groups().model.traffic();
  const at::Tensor ids = at::ones({job.microbatch, job.sequence_length}, at::kLong);
  for (int64_t i = 0; i < job.num_microbatches(); ++i) {
    sharded->backward(model->loss_sum(model->forward(models::TokenBatch{ids}), ids));
  }
  sharded->finish_gradients();
  sharded->publish();
  return since(sharded->groups().model.traffic(), before);
}

TEST(PlanCounted, AgreesOverTheModelAxisOfARealModel) {
  test::run_ranks(2, [](const dist::World& world) {
    for (const auto& [cuts_rows, recomputes, norms_heads] : {std::array{false, false, false},
                                                             {false, true, false},
                                                             {true, false, false},
                                                             {true, true, false},
                                                             {false, false, true},
                                                             {false, true, true},
                                                             {true, false, true}}) {
      PlanJob job = tiny_job(1, 1, 2);
      job.model.has_norms_over_heads = norms_heads;
      job.sequence_parallel = cuts_rows;
      job.checkpoint_activations = recomputes;
      dist::Traffic planned;
      for (const CollectivePlan& plan : traffic_plan(job, 0, world.rank())) {
        auto& kind = plan.operation == "all_gather"       ? planned.all_gather
                     : plan.operation == "reduce_scatter" ? planned.reduce_scatter
                                                          : planned.all_reduce;
        kind = {static_cast<uint64_t>(plan.calls), static_cast<uint64_t>(plan.bytes)};
      }
      const dist::Traffic counted = model_traffic(world, job);
      const std::string what = core::join("rows cut ", cuts_rows, ", recomputed ", recomputes,
                                          ", norms over heads ", norms_heads);
      EXPECT_EQ(counted.all_gather.calls, planned.all_gather.calls) << what;
      EXPECT_EQ(counted.all_gather.bytes, planned.all_gather.bytes) << what;
      EXPECT_EQ(counted.reduce_scatter.calls, planned.reduce_scatter.calls) << what;
      EXPECT_EQ(counted.reduce_scatter.bytes, planned.reduce_scatter.bytes) << what;
      EXPECT_EQ(counted.all_reduce.calls, planned.all_reduce.calls) << what;
      EXPECT_EQ(counted.all_reduce.bytes, planned.all_reduce.bytes) << what;
    }
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
          models::defer_model(counted_config(job.model), mesh.group({"model"}), {});
      ShardOptions options;
      options.values = deferred.values;
      const auto sharded = shard_module(*deferred.model, mesh, deferred.model->blocks(), options);
      expect_muon_as_planned(job, *sharded);
    });
  }
}

}  // namespace
}  // namespace weft::train
