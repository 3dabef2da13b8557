#include "weft/cli/cut/cut_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "weft/cli/cut/cut_rules.h"
#include "weft/core/error.h"
#include "weft/core/json.h"
#include "weft/io/shard_info/recut.h"
#include "weft/io/views/pieces.h"
#include "weft/io/views/read_view.h"

namespace weft::cli {
namespace {

using nlohmann::json;

// Tensors as they are: pieces go to their ranks, all else to every rank.
io::ShardPlan plan_without_rules(const io::TensorFile& file, int64_t num_ranks,
                                 const io::FunctionTable& functions) {
  return io::ShardPlan::make(file, io::pieces_info(file), num_ranks, functions);
}

io::ShardPlan plan_of(const io::TensorFile& file, const InspectOptions& options) {
  const io::FunctionTable functions = functions_for(file, options.cut.functions);
  const bool is_told = !options.cut.shard_info.empty();
  const auto cut = io::read_cut_checkpoint(file);
  const bool is_cut_so = cut && cut->num_ranks == options.tp;
  const bool has_rules = cut || (options.cut.tensors.empty() && has_config(file));
  if (!is_told && (is_cut_so || !has_rules)) {
    return plan_without_rules(file, options.tp, functions);
  }
  const io::ShardInfo info = find_info(file, options.cut);
  check_functions(info, functions);
  if (info.params.empty()) return plan_without_rules(file, options.tp, functions);
  return io::ShardPlan::make(file, io::recut_info(file, info, functions), options.tp, functions);
}

json param_json(const io::TensorFile& file, const io::PlannedParam& param, int64_t num_ranks) {
  const io::TensorMeta* whole = file.find(param.name);
  json out = {{"name", param.name},
              {"dtype", io::info(param.of(0).result.dtype()).name},
              {"shape", whole == nullptr ? json() : json(whole->shape)},
              {"is_cut", param.recipes.size() > 1}};
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    const io::View& shard = param.of(rank).result;
    out["ranks"].push_back({{"shape", shard.shape()}, {"bytes", shard.num_bytes()}});
  }
  return out;
}

json report_json(const io::TensorFile& file, const io::ShardPlan& plan,
                 const InspectOptions& options) {
  json out = {{"file", file.path()}, {"tp", plan.num_ranks()}, {"tensors", json::array()}};
  if (!options.cut.shard_info.empty()) out["shard_info"] = options.cut.shard_info;
  for (const io::PlannedParam& param : plan.params()) {
    out["tensors"].push_back(param_json(file, param, plan.num_ranks()));
  }
  for (int64_t rank = 0; rank < plan.num_ranks(); ++rank) {
    out["rank_bytes"].push_back(plan.shard_bytes(rank));
  }
  return out;
}

std::string param_line(const json& param) {
  std::string line = param["name"].get<std::string>();
  line.resize(std::max<size_t>(line.size(), 48), ' ');
  line += " " + param["dtype"].get<std::string>();
  if (!param["shape"].is_null()) line += " " + param["shape"].dump();
  const auto held = [](const json& rank) {
    return core::join(rank["shape"].dump(), " ", rank["bytes"].get<uint64_t>(), " B");
  };
  if (!param["is_cut"].get<bool>()) {
    return core::join(line, " | on every rank ", held(param["ranks"][0]), "\n");
  }
  for (const json& rank : param["ranks"]) line += " | " + held(rank);
  return line + "\n";
}

std::string report_table(const json& report) {
  std::string text = report["file"].get<std::string>();
  if (report.contains("shard_info")) text += " by " + report["shard_info"].get<std::string>();
  text += core::join(", tp ", report["tp"].get<int64_t>(), "\n");
  for (const json& param : report["tensors"]) text += param_line(param);
  size_t rank = 0;
  for (const json& bytes : report["rank_bytes"]) {
    text += core::join("rank ", rank++, ": ", bytes.get<uint64_t>(), " bytes\n");
  }
  return text;
}

void check_flags(const InspectOptions& options) {
  const InspectOptions usual;
  core::check<core::ConfigError>(
      options.expert_split == usual.expert_split && options.head_split == usual.head_split,
      "inspect: --expert-split or --head-split, expected neither beside rules, which say "
      "themselves how to cut; leave it out");
}

}  // namespace

json reads_json(const io::ShardPlan& plan) {
  json ranks = json::array();
  for (int64_t rank = 0; rank < plan.num_ranks(); ++rank) {
    const io::ReadStats stats = io::count_reads(plan, rank);
    ranks.push_back({{"planned_bytes", stats.planned_bytes},
                     {"read_bytes", stats.read_bytes},
                     {"spans", stats.num_spans},
                     {"peak_host_bytes", stats.peak_host_bytes}});
  }
  return {{"hash", core::join(std::hex, plan.hash())}, {"ranks", ranks}};
}

std::string reads_table(const json& reads) {
  std::string text = core::join("plan ", reads["hash"].get<std::string>(), "\n");
  size_t rank = 0;
  for (const json& each : reads["ranks"]) {
    text += core::join("rank ", rank, ": reads ", each["read_bytes"].get<uint64_t>(), " bytes for ",
                       each["planned_bytes"].get<uint64_t>(), " in ", each["spans"].get<uint64_t>(),
                       " spans, at most ", each["peak_host_bytes"].get<uint64_t>(),
                       " bytes beside the weights\n");
    ++rank;
  }
  return text;
}

std::string cut_report(const io::TensorFile& file, const InspectOptions& options) {
  check_flags(options);
  const io::ShardPlan plan = plan_of(file, options);
  json report = report_json(file, plan, options);
  if (options.shows_plan) report["plan"] = reads_json(plan);
  if (options.is_json) return core::dump_json(report) + "\n";
  return report_table(report) + (options.shows_plan ? reads_table(report["plan"]) : "");
}

}  // namespace weft::cli
