#include "weft/train/plan/plan_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "weft/core/error.h"
#include "weft/train/metrics/flops.h"
#include "weft/train/metrics/human_text.h"
#include "weft/train/plan/traffic_plan.h"

namespace weft::train {
namespace {

using core::join;
using core::Json;
using Row = std::vector<std::string>;

std::vector<std::pair<const char*, int64_t>> memory_parts(const MemoryPlan& memory) {
  return {{"parameters", memory.parameters},   {"masters", memory.masters},
          {"gradients", memory.gradients},     {"optimizer", memory.optimizer},
          {"gathered", memory.gathered},       {"gradient_work", memory.gradient_work},
          {"activations", memory.activations}, {"ordered_sums", memory.ordered_sums}};
}

std::vector<std::pair<const char*, double>> time_parts(const StepTime& time) {
  return {{"compute", time.compute},    {"model", time.model}, {"data", time.data},
          {"replica", time.replica},    {"pipe", time.pipe},   {"bubble", time.bubble},
          {"optimizer", time.optimizer}};
}

double tokens_per_s(const MeshPlan& plan) {
  return static_cast<double>(plan.job.sequences) * static_cast<double>(plan.job.sequence_length) /
         plan.time.total();
}

double mfu(const MeshPlan& plan, const Hardware& hardware) {
  const double peak =
      hardware.flops(plan.job.dtype_bytes) * static_cast<double>(plan.job.mesh.num_ranks());
  return step_flops(plan.job) / plan.time.total() / peak;
}

std::string bytes_text_of(int64_t bytes) { return bytes_text(static_cast<double>(bytes)); }

// Columns as wide as their longest cell, all but the last flush right.
std::string table_text(const std::vector<Row>& rows) {
  std::vector<size_t> widths;
  for (const Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()), 0);
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      if (i > 0) text += "  ";
      const bool is_last = i + 1 == row.size();
      text += is_last ? row[i] : std::string(widths[i] - row[i].size(), ' ') + row[i];
    }
    text += '\n';
  }
  return text;
}

// Bytes of all collectives on an axis per step.
int64_t axis_bytes(const MeshPlan& plan, const std::string& axis) {
  int64_t bytes = 0;
  for (const CollectivePlan& each : traffic_plan(plan.job, 0, 0)) {
    if (each.axis == axis) bytes += each.bytes;
  }
  return bytes;
}

Row mesh_row(const MeshPlan& plan, const Hardware& hardware) {
  const MeshSection& mesh = plan.job.mesh;
  return {std::to_string(mesh.replicas),
          std::to_string(mesh.dp),
          std::to_string(mesh.pipe),
          std::to_string(mesh.tp),
          join(plan.job.microbatch, " x ", plan.job.num_microbatches()),
          bytes_text_of(plan.memory.total()),
          bytes_text_of(axis_bytes(plan, "replica")),
          bytes_text_of(axis_bytes(plan, "data")),
          bytes_text_of(axis_bytes(plan, "model")),
          duration_text(plan.time.total()),
          count_text(tokens_per_s(plan)),
          fixed_text(100 * mfu(plan, hardware), 1) + " %",
          plan.time.bound()};
}

// "; stages of 10, 8 layers", if there are several.
std::string stages_text(const PlanJob& job) {
  if (job.mesh.pipe == 1) return {};
  std::string counts;
  for (const int64_t count : stage_layers(job.model, job.mesh.pipe, job.mesh.pipe_layers)) {
    counts += join(counts.empty() ? "" : ", ", count);
  }
  return join("; stages of ", counts, " layers");
}

std::string rejected_text(const MeshSearch& search) {
  std::string text;
  for (const RejectedMeshes& each : search.rejected) {
    text += join(each.count, each.count == 1 ? " mesh: " : " meshes ", each.reason, "\n");
  }
  return text.empty() ? text : "\nnot possible\n" + text;
}

}  // namespace

std::string mesh_plan_text(const MeshPlan& plan, const Hardware& hardware) {
  const PlanJob& job = plan.job;
  std::string text =
      join(mesh_text(job.mesh), ", ", job.num_microbatches(), " microbatches of ", job.microbatch,
           " x ", grouped_text(job.sequence_length), " tokens per data rank\n\nmemory of a rank\n");
  std::vector<Row> rows;
  for (const auto& [name, bytes] : memory_parts(plan.memory)) {
    if (bytes > 0) rows.push_back({bytes_text_of(bytes), name});
  }
  rows.push_back({bytes_text_of(plan.memory.total()), "in all"});
  text += table_text(rows);
  const auto traffic = traffic_plan(job, 0, 0);
  if (!traffic.empty()) text += "\ncollectives of a step\n";
  rows = {{"calls", "bytes", "per call", "axis"}};
  for (const CollectivePlan& each : traffic) {
    rows.push_back({grouped_text(each.calls), bytes_text_of(each.bytes),
                    bytes_text_of(each.bytes / each.calls), join(each.axis, ", ", each.operation)});
  }
  if (!traffic.empty()) text += table_text(rows);
  text += join("\ntime of a step on ", hardware.name, "\n");
  rows.clear();
  for (const auto& [name, seconds] : time_parts(plan.time)) {
    if (seconds > 0) rows.push_back({duration_text(seconds), name});
  }
  rows.push_back({duration_text(plan.time.total()), "in all, data beside compute and model"});
  return text + table_text(rows);
}

std::string search_text(const MeshSearch& search, const PlanJob& job, const Hardware& hardware,
                        int64_t top) {
  std::string text = join(
      "model   ", count_text(static_cast<double>(num_parameters(job.model))), " parameters, ",
      job.dtype_bytes == 2 ? "bfloat16" : "float32",
      job.checkpoint_activations ? ", activations computed again" : "", "\nbatch   ",
      grouped_text(job.sequences), " x ", grouped_text(job.sequence_length), " tokens\nranks   ",
      hardware.name, ": ", bytes_text(hardware.memory_bytes), ", ", hardware.ranks_per_host,
      " to a host; matrix products at ", fixed_text(100 * hardware.compute_efficiency, 0), " % of ",
      count_text(hardware.flops(job.dtype_bytes)), "flop/s, links at ",
      fixed_text(100 * hardware.link_efficiency, 0), " % of ", bytes_text(hardware.host_bandwidth),
      "/s in a host and ", bytes_text(hardware.network_bandwidth), "/s between\n\n");
  if (search.fitting.empty()) return text + "no mesh fits\n" + rejected_text(search);
  std::vector<Row> rows = {{"replica", "data", "pipe", "model", "micro x n", "memory",
                            "over replica", "over data", "over model", "step", "tokens/s", "MFU",
                            "longest"}};
  const size_t shown = std::min(static_cast<size_t>(top), search.fitting.size());
  for (size_t i = 0; i < shown; ++i) rows.push_back(mesh_row(search.fitting[i], hardware));
  text += table_text(rows);
  const size_t others = search.fitting.size() - shown;
  if (others > 0) text += join("and ", others, " more that fit\n");
  text += "\nthe fastest: " + mesh_plan_text(search.fitting[0], hardware);
  return text + rejected_text(search);
}

std::string run_header(const PlanJob& job) {
  const auto whole = static_cast<double>(num_parameters(job.model));
  const auto units = unit_sizes(job.model, job.place(0, 0));
  int64_t held = 0;
  for (const UnitSizes& unit : units) held += unit.num_elements();
  const MemoryPlan memory = largest_memory_plan(job);
  const int64_t tokens = job.sequences * job.sequence_length;
  std::string parts;
  for (const auto& [name, bytes] : memory_parts(memory)) {
    if (bytes > 0) parts += join(parts.empty() ? "" : ", ", name, " ", bytes_text_of(bytes));
  }
  return join(
      "model   ", count_text(whole), " parameters in ", job.model.num_layers, " layers; ",
      count_text(static_cast<double>(held) / static_cast<double>(job.mesh.dp)),
      " per rank, updated by a rank ",
      count_text(static_cast<double>(held) / static_cast<double>(job.mesh.num_data_ranks())),
      "\nmesh    ", mesh_text(job.mesh), " = ", job.mesh.num_ranks(), " ranks", stages_text(job),
      "\nbatch   ", job.sequences, " x ", grouped_text(job.sequence_length), " = ",
      grouped_text(tokens), " tokens a step; ", job.num_microbatches(), " microbatches of ",
      job.microbatch, " sequences per data rank\nmemory  ", bytes_text_of(memory.total()),
      " per rank predicted: ", parts, "\n");
}

Json mesh_plan_json(const MeshPlan& plan, const Hardware& hardware) {
  const MeshSection& mesh = plan.job.mesh;
  Json json = {{"replicas", mesh.replicas},
               {"dp", mesh.dp},
               {"pipe", mesh.pipe},
               {"tp", mesh.tp},
               {"microbatch", plan.job.microbatch},
               {"num_microbatches", plan.job.num_microbatches()},
               {"memory_bytes", plan.memory.total()},
               {"step_s", plan.time.total()},
               {"tokens_per_s", tokens_per_s(plan)},
               {"mfu", mfu(plan, hardware)},
               {"bound", plan.time.bound()}};
  for (const auto& [name, bytes] : memory_parts(plan.memory)) json["memory"][name] = bytes;
  for (const auto& [name, seconds] : time_parts(plan.time)) json["seconds"][name] = seconds;
  json["collectives"] = Json::array();
  for (const CollectivePlan& each : traffic_plan(plan.job, 0, 0)) {
    json["collectives"].push_back({{"axis", each.axis},
                                   {"operation", each.operation},
                                   {"calls", each.calls},
                                   {"bytes", each.bytes}});
  }
  return json;
}

Json search_json(const MeshSearch& search, const PlanJob& job, const Hardware& hardware,
                 int64_t top) {
  Json json = {{"hardware", hardware.name},
               {"num_parameters", num_parameters(job.model)},
               {"num_fitting", search.fitting.size()},
               {"meshes", Json::array()},
               {"rejected", Json::array()}};
  const size_t shown = std::min(static_cast<size_t>(top), search.fitting.size());
  for (size_t i = 0; i < shown; ++i) {
    json["meshes"].push_back(mesh_plan_json(search.fitting[i], hardware));
  }
  for (const RejectedMeshes& each : search.rejected) {
    json["rejected"].push_back({{"reason", each.reason}, {"count", each.count}});
  }
  return json;
}

}  // namespace weft::train
