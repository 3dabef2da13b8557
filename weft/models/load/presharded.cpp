#include "weft/models/load/presharded.h"

#include <set>

#include "weft/io/shard_info/recut.h"
#include "weft/io/shard_info/rule_index.h"
#include "weft/io/views/pieces.h"

namespace weft::models {
namespace {

std::set<std::string> names_in_pieces(const io::TensorFile& file) {
  std::set<std::string> names;
  for (const io::TensorMeta& tensor : file.tensors()) {
    if (const auto piece = io::parse_piece_name(tensor.name)) names.insert(piece->base);
  }
  return names;
}

// What the model's rules do to the floating tensors that are in pieces.
io::ShardInfo floating_info(const io::TensorFile& file, const WeightRules& rules,
                            const std::set<std::string>& names) {
  io::ShardInfo info;
  info.where = file.path();
  for (const WeightRule& weight : rules.weights) {
    if (!names.contains(weight.file_name) || weight.cut == Cut::kWhole) continue;
    io::ParamRule& rule = info.params.emplace_back();
    rule.name = weight.file_name;
    rule.shape = weight.is_vector() ? weight.vector_shape(weight.in)
                                    : std::vector<int64_t>{weight.out, weight.in};
    const bool is_by_columns = weight.cut == Cut::kColumns && !weight.is_vector();
    rule.steps.push_back(rules.splits.at(weight.split).step(is_by_columns ? 1 : 0, 1, 1));
  }
  return info;
}

// How a tensor was cut, if by units or runs.
const io::ShardStep* unit_cut(const io::RuleIndex& rules, const std::string& name) {
  const io::ParamRule* rule = rules.find(name);
  if (rule == nullptr || rule->steps.empty()) return nullptr;
  const std::string& function = rule->steps.back().function;
  return function == "shard" || function == io::kSegmentRuns ? &rule->steps.back() : nullptr;
}

// The units were chosen by how the wholes were stored, which pieces don't show.
void take_units(const io::ShardInfo& info, WeightRules& rules) {
  const auto argument = [](const io::ShardStep& step, size_t index, int64_t fallback) {
    const auto* value =
        index < step.arguments.size() ? std::get_if<int64_t>(&step.arguments[index]) : nullptr;
    return value == nullptr ? fallback : *value;
  };
  const io::RuleIndex cuts(info);
  for (const WeightRule& weight : rules.weights) {
    const io::ShardStep* step = unit_cut(cuts, weight.file_name);
    if (weight.split.empty() || step == nullptr) continue;
    DimSplit& split = rules.splits.at(weight.split);
    if (split.kind == DimSplit::Kind::kSegments) {
      split.num_runs = argument(*step, 2, 1);
      split.num_fine_runs = argument(*step, 3, 0);
      continue;
    }
    split.unit = argument(*step, 1, 1);
    split.fine_unit = argument(*step, 2, 0);
  }
}

}  // namespace

std::optional<io::ShardInfo> presharded_info(const io::TensorFile& file, WeightRules& rules,
                                             const io::FunctionTable& functions) {
  const std::set<std::string> names = names_in_pieces(file);
  if (names.empty()) return std::nullopt;
  const auto cut = io::read_cut_checkpoint(file);
  if (cut) take_units(cut->info, rules);
  return io::recut_info(file, cut ? cut->info : floating_info(file, rules, names), functions);
}

}  // namespace weft::models
