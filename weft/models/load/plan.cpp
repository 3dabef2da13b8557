#include "weft/models/load/plan.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "weft/core/error.h"
#include "weft/io/matrices/column_order.h"

namespace weft::models {
namespace {

using core::check;
using core::fail;
using core::FormatError;
using core::join;
using core::list_text;
using core::quote;
using core::ShapeError;

// Numbers of ranks whose sums agree. Halves first: two, four and eight have one sum each to share.
constexpr std::array<int64_t, kMostExactRanks> kExactNumbers = {2, 4, 8, 1, 3, 5, 6, 7};

// Recomputed by every implementation, or known from config.json; files hold them nevertheless.
bool is_derived(const std::string& tensor) {
  return tensor.ends_with(".rotary_emb.inv_freq") || tensor.ends_with(".weight_shape");
}

// Of activations, keys and values that others round to 8 bits as matrices are; weft doesn't.
bool is_activation_scale(const std::string& tensor) {
  constexpr const char* kSuffixes[] = {".input_scale", ".input_zero_point", ".activation_scale",
                                       ".k_scale", ".v_scale"};
  return std::ranges::any_of(kSuffixes,
                             [&](const char* suffix) { return tensor.ends_with(suffix); });
}

std::string param_name(const WeightRule& rule, const io::MatrixPart& part) {
  return rule.is_vector() ? rule.name : rule.base() + part.suffix;
}

// What a user's rules make of a matrix that the file does not have under its own name: one dense or
// block part, or MLX's three. `columns` are those that each rank wants.
class MadeFormat {
 public:
  MadeFormat(const io::ShardPlan& params, const WeightRule& rule, std::vector<int64_t> columns)
      : params_(params), rule_(rule), columns_(std::move(columns)) {}

  io::MatrixFormat find() const {
    const io::View& weight = part(".weight");
    if (weight.dtype() == io::Dtype::kU32) return affine(weight);
    check<core::ConfigError>(weight.dtype() != io::Dtype::kF8E4M3, "parameter ", quote(rule_.name),
                             ": F8_E4M3 in pieces or made of several tensors, expected one tensor "
                             "with its scales; convert the model to bfloat16, then cut it");
    return io::one_tensor_format(weight.dtype());
  }

 private:
  io::MatrixFormat affine(const io::View& weight) const {
    const int64_t groups = part(".scales").size(1);
    part(".biases");
    const io::Packing packing = weight.packing();
    check<ShapeError>(packing.unit_elements > 1 && groups > 0 && weight.size(1) % groups == 0,
                      "parameter ", quote(rule_.name), ": rank 0 gets ", io::to_text(weight.type()),
                      " with ", groups, " scales a row, expected packed values for ", columns_[0],
                      " columns; begin with as_bits");
    const int64_t read = weight.size(1);
    io::MatrixFormat format =
        io::affine_format(packing.unit_bits / packing.unit_elements, read / groups);
    if (reads_what_is_wanted()) format.in_unit = 1;
    return format;
  }

  // Otherwise it reads whole quant groups.
  bool reads_what_is_wanted() const {
    const io::PlannedParam& weight = *params_.find(rule_.name);
    for (size_t rank = 0; rank < columns_.size(); ++rank) {
      if (weight.of(static_cast<int64_t>(rank)).result.size(1) != columns_[rank]) return false;
    }
    return true;
  }

  const io::View& part(const char* suffix) const {
    const io::PlannedParam* param = params_.find(rule_.base() + suffix);
    check<ShapeError>(param != nullptr && param->of(0).result.num_dims() == 2, "parameter ",
                      quote(rule_.base() + suffix), ": expected a matrix; add a rule for it");
    return param->of(0).result;
  }

  const io::ShardPlan& params_;
  const WeightRule& rule_;
  std::vector<int64_t> columns_;
};

int64_t num_indices(const std::vector<shard::Range>& wanted, int64_t cover, int64_t per) {
  return shard::total_length(io::covering(wanted, cover)) / per;
}

// None where a rank would hold nothing.
std::optional<shard::Layout> possible_layout(const DimSplit& split, int64_t n) {
  try {
    return split.layout(n, "");
  } catch (const core::ConfigError&) {
    return std::nullopt;
  }
}

io::MatrixFormat vector_format(const io::PlannedParam& param) {
  io::MatrixFormat format;
  format.text = io::info(param.of(0).result.dtype()).name;
  format.parts.emplace_back();
  return format;
}

}  // namespace

LoadPlan::LoadPlan(const io::TensorFile& file, const WeightRules& rules, int64_t num_ranks,
                   const PlanOptions& options) {
  const io::ShardInfo* override = options.shard_info;
  splits_ = rules.splits;
  for (const auto& [name, split] : rules.splits) {
    layouts_[name] = split.layout(num_ranks, join(file.path(), ": ", name));
  }
  shares_experts_ = !rules.uncut_splits.empty();
  for (const auto& [name, split] : rules.uncut_splits) {
    splits_[name] = split;
    layouts_[name] = split.layout(1, join(file.path(), ": ", name));
  }
  const QuantizationConfig* said = options.quantization ? &*options.quantization : nullptr;
  params_ = io::ShardPlan::make(file, shard_info(file, rules, override, said), num_ranks,
                                options.functions);
  for (const WeightRule& rule : rules.weights) add_weight(file, rule);
  if (options.quantization) take_quantization(*options.quantization);
  check_all_used(file, override);
  for (const PlannedWeight& weight : weights_) {
    check_shapes(weight, override == nullptr ? file.path() : override->where);
  }
}

void LoadPlan::take_quantization(const QuantizationConfig& config) {
  for (PlannedWeight& weight : weights_) {
    if (!weight.rule.is_vector()) take_stated(config, weight.rule.matrix(), weight.format);
  }
}

void LoadPlan::add_weight(const io::TensorFile& file, const WeightRule& rule) {
  PlannedWeight weight;
  weight.rule = rule;
  const std::string stored = rule.matrix().base;
  if (rule.is_vector()) {
    weight.format = vector_format(*params_.find(rule.name));
  } else if (io::has_matrix(file, stored)) {
    weight.format = io::matrix_format(file, rule.matrix());
  } else {
    std::vector<int64_t> columns;
    for (int64_t rank = 0; rank < num_ranks(); ++rank) {
      columns.push_back(shard::total_length(slice(weight, rank).columns));
    }
    weight.format = MadeFormat(params_, rule, std::move(columns)).find();
  }
  for (const io::MatrixPart& part : weight.format.parts) {
    const std::string name = param_name(rule, part);
    const io::PlannedParam* param = params_.find(name);
    check<FormatError>(param != nullptr, file.path(), ": parameter ", quote(name), " of ",
                       weight.format.text, " has no rule; add one to shard_info");
    weight.parts.push_back(static_cast<size_t>(param - params_.params().data()));
  }
  by_name_[rule.name] = weights_.size();
  weights_.push_back(std::move(weight));
}

void LoadPlan::check_all_used(const io::TensorFile& file, const io::ShardInfo* override) const {
  std::set<size_t> used;
  bool may_round_activations = false;
  for (const PlannedWeight& weight : weights_) {
    used.insert(weight.parts.begin(), weight.parts.end());
    const std::string& scheme = weight.format.scheme;
    may_round_activations = may_round_activations || scheme == "int" || scheme == "fp8";
    for (const std::string& tensor : weight.format.beside) {
      const io::PlannedParam* param = params_.find(tensor);
      if (param != nullptr) used.insert(static_cast<size_t>(param - params_.params().data()));
    }
  }
  const auto is_spare = [&](const std::string& tensor) {
    return is_derived(tensor) || (may_round_activations && is_activation_scale(tensor));
  };
  std::vector<std::string> unused;
  for (size_t i = 0; i < params_.params().size(); ++i) {
    const std::string& name = params_.params()[i].name;
    if (!used.contains(i) && !is_spare(name)) unused.push_back(name);
  }
  if (unused.empty()) return;
  const size_t count = unused.size();
  unused.resize(std::min<size_t>(count, 5));
  const std::string where =
      override == nullptr ? file.path() : join(file.path(), " with ", override->where);
  fail<FormatError>(where, ": ", count, " tensors that the model does not use, e.g. ",
                    list_text(unused), "; the file holds another model");
}

void LoadPlan::check_shapes(const PlannedWeight& weight, const std::string& where) const {
  const io::MatrixFormat& format = weight.format;
  for (int64_t rank = 0; rank < num_ranks(); ++rank) {
    const io::MatrixSlice wanted = stored_slice(weight, rank);
    for (size_t i = 0; i < weight.parts.size(); ++i) {
      const io::MatrixPart& part = format.parts[i];
      const io::TensorType type = recipe(weight, i, rank).result.type();
      std::vector<int64_t> expected = {num_indices(wanted.rows, format.out_unit, part.per_out),
                                       num_indices(wanted.columns, format.in_unit, part.per_in)};
      if (part.shared_in > 0) expected[1] = part.shared_in;
      if (part.out_dim == 1) std::swap(expected[0], expected[1]);
      if (part.out_dim < 0) expected = {expected[1]};
      if (weight.rule.is_vector()) expected = weight.rule.vector_shape(expected[1]);
      if (type.shape == expected) continue;
      fail<ShapeError>(where, ": parameter ", quote(param_name(weight.rule, part)), ": rank ", rank,
                       " of ", num_ranks(), " gets ", io::to_text(type), ", expected ",
                       list_text(expected), "; the model cuts it ",
                       weight.rule.split.empty() ? "not at all" : "by " + weight.rule.split);
    }
  }
}

const PlannedWeight* LoadPlan::find(const std::string& name) const {
  const auto at = by_name_.find(name);
  return at == by_name_.end() ? nullptr : &weights_[at->second];
}

const PlannedWeight& LoadPlan::require(const std::string& name) const {
  const PlannedWeight* weight = find(name);
  check<core::InternalError>(weight != nullptr, "models: no weight ", quote(name), " in the plan");
  return *weight;
}

const shard::Layout& LoadPlan::split(const std::string& name) const {
  const auto at = layouts_.find(name);
  check<core::InternalError>(at != layouts_.end(), "models: no split ", quote(name),
                             " in the plan");
  return at->second;
}

shard::SumOrder LoadPlan::sum_order(const std::string& name, int64_t run) const {
  const auto at = splits_.find(name);
  check<core::InternalError>(at != splits_.end(), "models: no split ", quote(name), " in the plan");
  std::vector<shard::Layout> cuts;
  for (const int64_t n : kExactNumbers) {
    for (const auto heads : {shard::HeadSplit::kEven, shard::HeadSplit::kKv}) {
      DimSplit split = at->second.at_multiples_of(run);
      split.head_split = heads;
      const auto layout = possible_layout(split, n);
      if (layout && layout->common_run(0) % run == 0) cuts.push_back(*layout);
    }
  }
  return shard::SumOrder(cuts);
}

shard::SumOrder LoadPlan::sum_order(int64_t units) {
  std::vector<shard::Layout> cuts;
  for (const int64_t n : kExactNumbers) {
    if (n <= units) cuts.push_back(shard::make_layout({0, {}, 1}, units, n, "units"));
  }
  return shard::SumOrder(cuts);
}

io::MatrixSlice LoadPlan::slice(const PlannedWeight& weight, int64_t rank) const {
  const WeightRule& rule = weight.rule;
  io::MatrixSlice slice{{{0, std::max<int64_t>(rule.out, 1)}}, {{0, rule.in}}};
  if (rule.cut == Cut::kWhole) return slice;
  const bool is_by_rows = rule.cut == Cut::kRows && !rule.is_vector();
  (is_by_rows ? slice.rows : slice.columns) = split(rule.split).of(rank);
  return slice;
}

io::MatrixSlice LoadPlan::stored_slice(const PlannedWeight& weight, int64_t rank) const {
  io::MatrixSlice wanted = slice(weight, rank);
  const auto& runs = weight.rule.column_runs;
  if (!runs.empty()) {
    wanted.columns = io::within_stored_runs(wanted.columns, runs, weight.format.in_unit);
  }
  return wanted;
}

const io::ShardRecipe& LoadPlan::recipe(const PlannedWeight& weight, size_t part,
                                        int64_t rank) const {
  return params_.params()[weight.parts[part]].of(rank);
}

uint64_t LoadPlan::planned_bytes(const PlannedWeight& weight, int64_t rank) const {
  uint64_t bytes = 0;
  for (size_t i = 0; i < weight.parts.size(); ++i) {
    bytes += recipe(weight, i, rank).file_view().num_bytes();
  }
  return bytes;
}

}  // namespace weft::models
