#include <cstdio>
#include <nlohmann/json.hpp>

#include "weft/cli/cut/cut_report.h"
#include "weft/cli/cut/cut_rules.h"
#include "weft/cli/model/session.h"
#include "weft/cli/streams.h"
#include "weft/cli/verbs/run.h"
#include "weft/core/error.h"
#include "weft/core/json.h"
#include "weft/models/load/load.h"

namespace weft::cli {
namespace {

using models::Cut;
using models::LoadPlan;
using models::PlannedWeight;
using nlohmann::json;

// What a rank holds of a weight's cut dim, as a range.
shard::Range held(const LoadPlan& plan, const PlannedWeight& weight, int64_t rank) {
  const io::MatrixSlice slice = plan.slice(weight, rank);
  const bool is_by_columns = weight.rule.is_vector() || weight.rule.cut == Cut::kColumns;
  const auto& ranges = is_by_columns ? slice.columns : slice.rows;
  if (ranges.empty()) return {};
  return {ranges.front().start, ranges.back().end() - ranges.front().start};
}

const char* cut_text(const models::WeightRule& rule) {
  if (rule.cut == Cut::kWhole) return "whole";
  return rule.cut == Cut::kRows ? "rows" : "columns";
}

json tensor_json(const LoadPlan& plan, const PlannedWeight& weight) {
  const models::WeightRule& rule = weight.rule;
  json tensor = {{"name", rule.name},
                 {"file_name", rule.file_name},
                 {"cut", cut_text(rule)},
                 {"dtype", weight.format.text}};
  tensor["shape"] = rule.is_vector() ? json(rule.vector_shape(rule.in)) : json{rule.out, rule.in};
  tensor["split"] = rule.split.empty() ? json() : json(rule.split);
  for (int64_t rank = 0; rank < plan.num_ranks(); ++rank) {
    const shard::Range range = held(plan, weight, rank);
    tensor["ranks"].push_back({{"start", range.start},
                               {"end", range.end()},
                               {"bytes", plan.planned_bytes(weight, rank)}});
  }
  return tensor;
}

// What one rank alone would hold, and what every rank holds whole.
json report(const io::TensorFile& file, const std::string& family, const LoadPlan& plan,
            const LoadPlan& whole) {
  json out = {{"file", file.path()}, {"family", family}, {"tp", plan.num_ranks()}};
  uint64_t whole_bytes = 0, replicated_bytes = 0;
  for (const PlannedWeight& weight : plan.weights()) {
    out["tensors"].push_back(tensor_json(plan, weight));
    const uint64_t bytes = whole.planned_bytes(whole.require(weight.rule.name), 0);
    whole_bytes += bytes;
    if (weight.rule.cut == Cut::kWhole) replicated_bytes += bytes;
  }
  out["whole_bytes"] = whole_bytes;
  out["replicated_bytes"] = replicated_bytes;
  for (int64_t rank = 0; rank < plan.num_ranks(); ++rank) {
    out["rank_bytes"].push_back(plan.params().planned_bytes(rank));
  }
  return out;
}

std::string model_table(const json& report) {
  std::string text =
      core::join(report["file"].get<std::string>(), ": ", report["family"].get<std::string>(),
                 ", tp ", report["tp"].get<int>(), "\n");
  for (const json& tensor : report["tensors"]) {
    std::string line = tensor["name"].get<std::string>();
    line.resize(std::max<size_t>(line.size(), 48), ' ');
    line += core::join(" ", tensor["shape"].dump(), " ", tensor["dtype"].get<std::string>(), " ",
                       tensor["cut"].get<std::string>());
    if (!tensor["split"].is_null()) line += " by " + tensor["split"].get<std::string>();
    for (const json& rank : tensor["ranks"]) {
      line += core::join(" | ", rank["start"].get<int64_t>(), "-", rank["end"].get<int64_t>(), " ",
                         rank["bytes"].get<uint64_t>(), " B");
    }
    text += line + "\n";
  }
  uint64_t sum = 0;
  for (size_t r = 0; r < report["rank_bytes"].size(); ++r) {
    const auto bytes = report["rank_bytes"][r].get<uint64_t>();
    sum += bytes;
    text += core::join("rank ", r, ": ", bytes, " bytes\n");
  }
  return text + core::join("sum: ", sum, " bytes; whole: ", report["whole_bytes"].get<uint64_t>(),
                           " bytes, of which every rank holds ",
                           report["replicated_bytes"].get<uint64_t>(), " (norms)\n");
}

}  // namespace

int run_inspect(const InspectOptions& options) {
  const auto file = open_tensors(options.cut);
  const bool has_rules = !options.cut.shard_info.empty() || !options.cut.tensors.empty();
  if (has_rules || !has_config(*file)) {
    TextOutput().write(cut_report(*file, options));
    return 0;
  }
  const models::ModelConfig config = models::read_config(*file);
  const LoadPlan whole = models::make_plan(*file, 1);
  models::LoadOptions load;
  load.expert_split = expert_split_of(options.expert_split);
  load.head_split = head_split_of(options.head_split);
  const LoadPlan plan = models::make_plan(*file, options.tp, load);
  json out = report(*file, config.family, plan, whole);
  if (options.shows_plan) out["plan"] = reads_json(plan.params());
  std::string text = options.is_json ? core::dump_json(out) + "\n" : model_table(out);
  if (options.shows_plan && !options.is_json) text += reads_table(out["plan"]);
  TextOutput().write(text);
  return 0;
}

}  // namespace weft::cli
