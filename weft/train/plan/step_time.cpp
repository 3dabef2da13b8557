#include "weft/train/plan/step_time.h"

#include <algorithm>
#include <utility>

#include "weft/train/metrics/flops.h"
#include "weft/train/plan/memory_plan.h"
#include "weft/train/plan/traffic_plan.h"

namespace weft::train {
namespace {

// Forward is a third of forward and backward; checkpointing does it twice.
constexpr double kRecompute = 4.0 / 3.0;

constexpr double kMuonIterations = 5;

// Ranks from one neighbour on the axis to the next.
int64_t stride(const MeshSection& mesh, const std::string& axis) {
  if (axis == "model" || axis == "all") return 1;
  if (axis == "pipe") return mesh.tp;
  if (axis == "data") return mesh.tp * mesh.pipe;
  return mesh.tp * mesh.pipe * mesh.dp;
}

// A ring that leaves the host does so once, so that it has the network adapters of all ranks of the
// host that are in it, as far as the links within the host bring it there; the rings of neighbours
// share them.
double bandwidth(const PlanJob& job, const Hardware& hardware, const std::string& axis) {
  const int64_t between = stride(job.mesh, axis);
  const bool is_in_host = between * axis_size(job.mesh, axis) <= hardware.ranks_per_host;
  const auto adapters =
      static_cast<double>(std::max<int64_t>(1, hardware.ranks_per_host / between));
  const double network = std::min(hardware.host_bandwidth, hardware.network_bandwidth * adapters);
  return (is_in_host ? hardware.host_bandwidth : network) * hardware.link_efficiency;
}

double axis_seconds(const PlanJob& job, const Hardware& hardware, const std::string& axis,
                    int64_t stage) {
  double bytes = 0;
  for (const CollectivePlan& plan : traffic_plan(job, stage, 0)) {
    if (plan.axis == axis) bytes += bytes_on_wire(plan, axis_size(job.mesh, axis));
  }
  return bytes / bandwidth(job, hardware, axis);
}

// The gradient is read; masters and moments are read and written.
double optimizer_seconds(const PlanJob& job, const Hardware& hardware, int64_t stage) {
  const MemoryPlan plan = memory_plan(job, stage, 0);
  const auto owned = static_cast<double>(plan.parameters) / static_cast<double>(job.dtype_bytes) *
                     4 / static_cast<double>(job.mesh.replicas);
  return (3 * owned + 2 * static_cast<double>(plan.optimizer)) / hardware.memory_bandwidth;
}

// Muon's products, shared out over all ranks: three per iteration, with the square of the shorter
// side. In float32.
double muon_seconds(const PlanJob& job, const Hardware& hardware) {
  if (job.optimizer.name != "muon") return 0;
  const int64_t width = job.model.hidden_size;
  double flops = 0;
  for (const UnitSizes& unit : unit_sizes(job.model, {})) {
    for (const size_t matrix : unit.hidden_matrices) {
      const int64_t other = unit.numels[matrix] / width;
      const auto shorter = static_cast<double>(std::min(width, other));
      const auto longer = static_cast<double>(std::max(width, other));
      flops += kMuonIterations * shorter * shorter * (4 * longer + 2 * shorter);
    }
  }
  const double speed = hardware.float32_flops * hardware.compute_efficiency;
  return flops / static_cast<double>(job.mesh.num_ranks()) / speed;
}

StepTime stage_time(const PlanJob& job, const Hardware& hardware, int64_t stage) {
  StepTime time;
  const int64_t stage_ranks = job.mesh.num_ranks() / job.mesh.pipe;
  const auto ranks = static_cast<double>(stage_ranks);
  const double speed = hardware.flops(job.dtype_bytes) * hardware.compute_efficiency;
  time.compute = step_flops(job) * (job.checkpoint_activations ? kRecompute : 1) / ranks / speed *
                 stage_work(job.model, job.place(stage, 0));
  time.model = axis_seconds(job, hardware, "model", stage);
  time.data = axis_seconds(job, hardware, "data", stage);
  time.replica = axis_seconds(job, hardware, "replica", stage);
  time.pipe = axis_seconds(job, hardware, "pipe", stage);
  time.optimizer = optimizer_seconds(job, hardware, stage) + muon_seconds(job, hardware) +
                   axis_seconds(job, hardware, "all", stage);
  const double busy = std::max(time.compute + time.model, time.data) + time.pipe;
  time.bubble =
      busy * static_cast<double>(job.mesh.pipe - 1) / static_cast<double>(job.num_microbatches());
  return time;
}

}  // namespace

double StepTime::total() const {
  return std::max(compute + model, data) + pipe + bubble + replica + optimizer;
}

std::string StepTime::bound() const {
  const std::pair<double, const char*> parts[] = {
      {compute, "compute"}, {model, "model"},   {data, "data"},          {replica, "replica"},
      {pipe, "pipe"},       {bubble, "bubble"}, {optimizer, "optimizer"}};
  return std::max_element(std::begin(parts), std::end(parts),
                          [](const auto& a, const auto& b) { return a.first < b.first; })
      ->second;
}

double step_flops(const PlanJob& job) {
  FlopSizes sizes;
  sizes.num_parameters = num_matmul_parameters(job.model);
  sizes.attention_width = job.model.num_layers * job.model.num_heads * job.model.head_dim;
  sizes.sequence_length = job.sequence_length;
  return flops_per_token(sizes) * static_cast<double>(job.sequences) *
         static_cast<double>(job.sequence_length);
}

StepTime step_time(const PlanJob& job, const Hardware& hardware) {
  StepTime slowest;
  for (int64_t stage = 0; stage < job.mesh.pipe; ++stage) {
    const StepTime time = stage_time(job, hardware, stage);
    if (time.total() > slowest.total()) slowest = time;
  }
  return slowest;
}

}  // namespace weft::train
