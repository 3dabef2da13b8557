#include <cstdio>
#include <nlohmann/json.hpp>

#include "weft/cli/session.h"
#include "weft/cli/verbs.h"
#include "weft/core/error.h"
#include "weft/core/json.h"
#include "weft/models/registry.h"

namespace weft::cli {
namespace {

using models::Cut;
using models::LoadPlan;
using models::WeightPlan;
using nlohmann::json;

// Smallest row and one past the largest: rows may be reordered within.
shard::Range row_span(const WeightPlan& weight) {
  int64_t start = INT64_MAX, end = 0;
  for (const shard::Range& rows : weight.slice.rows) {
    start = std::min(start, rows.start);
    end = std::max(end, rows.end());
  }
  return {start, end - start};
}

shard::Range held(const WeightPlan& weight) {
  return weight.is_vector() || weight.cut == Cut::kColumns ? weight.slice.columns
                                                           : row_span(weight);
}

const char* cut_text(const WeightPlan& weight) {
  if (weight.cut == Cut::kWhole) return "whole";
  return weight.cut == Cut::kRows ? "rows" : "columns";
}

json tensor_json(const io::TensorFile& file, const std::vector<LoadPlan>& plans, size_t index) {
  const WeightPlan& first = plans[0].weights[index];
  json tensor = {{"name", first.name},
                 {"file_name", first.matrix.name},
                 {"cut", cut_text(first)},
                 {"dtype", models::stored_as(file, first)}};
  tensor["shape"] =
      first.is_vector() ? json{first.matrix.in} : json{first.matrix.out, first.matrix.in};
  tensor["split"] = first.split.empty() ? json() : json(first.split);
  for (const LoadPlan& plan : plans) {
    const WeightPlan& weight = plan.weights[index];
    const shard::Range range = held(weight);
    tensor["ranks"].push_back({{"start", range.start},
                               {"end", range.end()},
                               {"bytes", models::planned_bytes(file, weight)}});
  }
  return tensor;
}

// What one rank alone would hold, and what every rank holds whole.
json report(const io::TensorFile& file, const std::string& family,
            const std::vector<LoadPlan>& plans, const LoadPlan& whole) {
  json out = {{"file", file.path()}, {"family", family}, {"tp", plans.size()}};
  std::vector<uint64_t> rank_bytes(plans.size());
  uint64_t whole_bytes = 0, replicated_bytes = 0;
  for (size_t i = 0; i < whole.weights.size(); ++i) {
    json tensor = tensor_json(file, plans, i);
    for (size_t r = 0; r < plans.size(); ++r)
      rank_bytes[r] += tensor["ranks"][r]["bytes"].get<uint64_t>();
    const uint64_t bytes = models::planned_bytes(file, whole.weights[i]);
    whole_bytes += bytes;
    if (whole.weights[i].cut == Cut::kWhole) replicated_bytes += bytes;
    out["tensors"].push_back(std::move(tensor));
  }
  out["whole_bytes"] = whole_bytes;
  out["replicated_bytes"] = replicated_bytes;
  out["rank_bytes"] = rank_bytes;
  return out;
}

std::string table(const json& report) {
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

int run_inspect(const Args& args) {
  CLI::App app("Shows a model's tensors, how they are cut and what each rank holds.", "inspect");
  std::string model;
  int64_t tp = 1;
  bool is_json = false;
  app.add_option("model,-m,--model", model, "the model");
  app.add_option("--tp,--tensor-parallel-size", tp, "ranks to cut it over (default: 1)")
      ->check(whole_number(1, 1024));
  app.add_flag("--json", is_json, "print one JSON object");
  if (!parse_flags(app, args)) return 0;
  const auto file = io::TensorFile::open(model_path(model));
  const models::ModelConfig config = models::read_config(*file);
  const models::Family& family = models::find_family(config.family);
  std::vector<LoadPlan> plans;
  for (int64_t rank = 0; rank < tp; ++rank) plans.push_back(family.plan(config, *file, tp, rank));
  const LoadPlan whole = family.plan(config, *file, 1, 0);
  models::check_all_used(*file, whole);
  const json out = report(*file, config.family, plans, whole);
  TextOutput().write(is_json ? core::dump_json(out) + "\n" : table(out));
  return 0;
}

}  // namespace weft::cli
