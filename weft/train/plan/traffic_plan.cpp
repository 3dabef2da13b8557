#include "weft/train/plan/traffic_plan.h"

#include <algorithm>

#include "weft/core/error.h"
#include "weft/train/flat_layout.h"
#include "weft/train/pipeline/stage_schedule.h"

namespace weft::train {
namespace {

constexpr int64_t kFloatBytes = 4;

using Plans = std::vector<CollectivePlan>;

void add(Plans& plans, const char* axis, const char* operation, int64_t calls, int64_t bytes) {
  if (calls == 0) return;
  CollectivePlan plan;
  plan.axis = axis;
  plan.operation = operation;
  plan.calls = calls;
  plan.bytes = bytes;
  plans.push_back(std::move(plan));
}

std::vector<FlatLayout> layouts_of(const PlanJob& job, const std::vector<UnitSizes>& units) {
  std::vector<FlatLayout> layouts;
  for (const UnitSizes& unit : units) {
    layouts.emplace_back(unit.numels, job.mesh.dp, job.mesh.replicas);
  }
  return layouts;
}

// How often a unit is gathered in a step. A block that is used next is not gathered again: the last
// one's backward after its forward, and a single one's forward after its forward.
int64_t num_gathers(const PlanJob& job, int64_t unit, int64_t num_blocks, int64_t stage) {
  if (unit >= num_blocks) return 1;
  const int64_t microbatches = job.num_microbatches();
  if (!job.release_after_forward || num_blocks == 1) return microbatches;
  if (unit + 1 < num_blocks) return 2 * microbatches;
  // Backwards that follow a forward at once: the first one always does.
  const int64_t warm_up = num_warm_up(job.mesh.pipe, stage, microbatches);
  return 2 * microbatches - std::max<int64_t>(1, microbatches - warm_up);
}

void add_data(Plans& plans, const PlanJob& job, const std::vector<FlatLayout>& layouts,
              int64_t num_blocks, int64_t stage) {
  if (job.mesh.dp == 1) return;
  int64_t gathers = 0, gathered = 0, run_bytes = 0;
  for (size_t i = 0; i < layouts.size(); ++i) {
    const int64_t times = num_gathers(job, static_cast<int64_t>(i), num_blocks, stage);
    gathers += times;
    gathered += times * layouts[i].length() * job.dtype_bytes;
    run_bytes += layouts[i].length() * kFloatBytes;
  }
  const auto units = static_cast<int64_t>(layouts.size());
  add(plans, "data", "all_gather", gathers, gathered);
  add(plans, "data", "reduce_scatter", units * job.num_microbatches(),
      run_bytes * job.num_microbatches());
}

void add_replica(Plans& plans, const PlanJob& job, const std::vector<FlatLayout>& layouts) {
  if (job.mesh.replicas == 1) return;
  int64_t elements = 0;
  for (const FlatLayout& layout : layouts) elements += layout.share_length();
  const auto units = static_cast<int64_t>(layouts.size());
  add(plans, "replica", "reduce_scatter", units, elements * kFloatBytes);
  add(plans, "replica", "all_gather", units, elements * job.dtype_bytes);
}

// Collectives of a microbatch's activations.
struct ActivationCalls {
  int64_t all_gather = 0;
  int64_t reduce_scatter = 0;
  int64_t all_reduce = 0;
};

ActivationCalls activation_calls(const PlanJob& job, const RankSizes& rank) {
  const int64_t forwards = job.checkpoint_activations ? 2 : 1;
  const int64_t halves = 2 * rank.num_layers;
  const int64_t embedding = rank.has_embedding ? 1 : 0, head = rank.has_head ? 1 : 0;
  ActivationCalls calls;
  if (job.sequence_parallel) {
    // Backward gathers gradients and, for the gradients of the weights, the rows of inputs a second
    // time.
    calls.all_gather = halves * (forwards + 2) + embedding + 2 * head;
    calls.reduce_scatter = halves * (forwards + 1) + embedding + head;
  } else {
    calls.all_reduce = halves * (forwards + 1) + embedding + head;
  }
  return calls;
}

void add_model(Plans& plans, const PlanJob& job, const RankSizes& rank,
               const std::vector<UnitSizes>& units, const std::vector<FlatLayout>& layouts) {
  if (job.mesh.tp == 1) return;
  const int64_t microbatches = job.num_microbatches();
  const int64_t activation = job.num_tokens() * job.model.hidden_size * job.dtype_bytes;
  const ActivationCalls calls = activation_calls(job, rank);
  const auto add_activations = [&](const char* operation, int64_t count) {
    add(plans, "model", operation, microbatches * count, microbatches * count * activation);
  };
  add_activations("all_gather", calls.all_gather);
  add_activations("reduce_scatter", calls.reduce_scatter);
  // The sums of squares of queries and of keys, and in backward their gradients.
  const int64_t forwards = job.checkpoint_activations ? 2 : 1;
  const int64_t norm_calls =
      job.model.has_norms_over_heads ? 2 * rank.num_layers * (forwards + 1) * microbatches : 0;
  const int64_t norm_bytes = norm_calls * job.num_tokens() * kFloatBytes;
  const int64_t loss_calls = rank.has_head ? 2 * microbatches : 0;
  // The maximum; then the sum and the target's logit together.
  const int64_t loss_bytes = rank.has_head ? 3 * microbatches * job.num_tokens() * kFloatBytes : 0;
  int64_t sums = 0, summed = 0;
  for (size_t i = 0; i < units.size(); ++i) {
    if (!units[i].is_sum) continue;
    ++sums;
    summed += layouts[i].share_length();
  }
  add(plans, "model", "all_reduce",
      microbatches * calls.all_reduce + norm_calls + loss_calls + sums,
      microbatches * calls.all_reduce * activation + norm_bytes + loss_bytes +
          summed * kFloatBytes);
}

void add_pipe(Plans& plans, const PlanJob& job, const std::vector<UnitSizes>& units,
              int64_t stage) {
  const int64_t neighbours = (stage > 0 ? 1 : 0) + (stage + 1 < job.mesh.pipe ? 1 : 0);
  int64_t calls = neighbours * job.num_microbatches();
  const int64_t ranks = job.sequence_parallel ? job.mesh.tp : 1;
  int64_t bytes = calls * job.num_tokens() * job.model.hidden_size * job.dtype_bytes / ranks;
  for (const UnitSizes& unit : units) {
    if (!unit.is_shared) continue;
    ++calls;
    bytes += FlatLayout(unit.numels, job.mesh.dp, job.mesh.replicas).owned_length() * kFloatBytes;
  }
  add(plans, "pipe", "send", calls, bytes);
}

void add_optimizer(Plans& plans, const PlanJob& job) {
  if (job.optimizer.name != "muon" || job.mesh.num_ranks() == 1) return;
  int64_t matrices = 0, elements = 0;
  for (const UnitSizes& unit : unit_sizes(job.model, {})) {
    for (const size_t matrix : unit.hidden_matrices) {
      ++matrices;
      elements += unit.numels[matrix];
    }
  }
  for (const char* operation : {"all_reduce", "broadcast"}) {
    add(plans, "all", operation, matrices, elements * kFloatBytes);
  }
}

}  // namespace

std::vector<CollectivePlan> traffic_plan(const PlanJob& job, int64_t stage, int64_t model_rank) {
  const ModelPlace place = job.place(stage, model_rank);
  const RankSizes rank = rank_sizes(job.model, place);
  const std::vector<UnitSizes> units = unit_sizes(job.model, place);
  const std::vector<FlatLayout> layouts = layouts_of(job, units);
  Plans plans;
  add_data(plans, job, layouts, rank.num_layers, stage);
  add_replica(plans, job, layouts);
  add_model(plans, job, rank, units, layouts);
  add_pipe(plans, job, units, stage);
  add_optimizer(plans, job);
  return plans;
}

double bytes_on_wire(const CollectivePlan& plan, int64_t ranks) {
  const auto bytes = static_cast<double>(plan.bytes);
  if (plan.operation == "send" || plan.operation == "broadcast") return bytes;
  const double share = static_cast<double>(ranks - 1) / static_cast<double>(ranks);
  return bytes * share * (plan.operation == "all_reduce" ? 2 : 1);
}

int64_t axis_size(const MeshSection& mesh, const std::string& axis) {
  if (axis == "replica") return mesh.replicas;
  if (axis == "data") return mesh.dp;
  if (axis == "pipe") return mesh.pipe;
  if (axis == "all") return mesh.num_ranks();
  core::check<core::InternalError>(axis == "model", "train.axis_size: no axis '", axis, "'");
  return mesh.tp;
}

}  // namespace weft::train
