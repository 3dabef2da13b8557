#include "weft/io/shard_info/shard_plan.h"

#include <algorithm>

#include "weft/core/error.h"
#include "weft/io/shard_info/apply_steps.h"
#include "weft/io/shard_info/param_sources.h"
#include "weft/io/shard_info/plan_hash.h"
#include "weft/io/shard_info/shard_info_json.h"

namespace weft::io {

using core::check;
using core::ConfigError;

ShardPlan ShardPlan::make(const TensorFile& file, const ShardInfo& info, int64_t num_ranks,
                          const FunctionTable& functions) {
  constexpr int64_t kMaxRanks = 1 << 16;
  check<ConfigError>(num_ranks >= 1 && num_ranks <= kMaxRanks, "io.ShardPlan: ", num_ranks,
                     " ranks, expected 1 to ", kMaxRanks);
  check<ConfigError>(!info.num_ranks || *info.num_ranks == num_ranks, info.where, ": made for ",
                     info.num_ranks.value_or(0), " ranks, got ", num_ranks,
                     "; make it for that number, or in weft's form for any");
  ShardPlan plan;
  plan.num_ranks_ = num_ranks;
  PlanHash hash;
  hash.add(static_cast<uint64_t>(num_ranks));
  for (const TensorMeta& tensor : file.tensors()) hash.add(tensor);
  for (const ParamSources& param : param_sources(file, info)) {
    PlannedParam planned;
    planned.name = param.name;
    planned.recipes =
        apply_steps(param, num_ranks, functions, parameter_where(info.where, param.name));
    hash.add(planned);
    plan.params_.push_back(std::move(planned));
  }
  plan.hash_ = hash.value();
  return plan;
}

const PlannedParam* ShardPlan::find(const std::string& name) const {
  const auto at =
      std::lower_bound(params_.begin(), params_.end(), name,
                       [](const PlannedParam& a, const std::string& b) { return a.name < b; });
  return at != params_.end() && at->name == name ? &*at : nullptr;
}

uint64_t ShardPlan::planned_bytes(int64_t rank) const {
  uint64_t bytes = 0;
  for (const PlannedParam& param : params_) bytes += param.of(rank).file_view().num_bytes();
  return bytes;
}

uint64_t ShardPlan::shard_bytes(int64_t rank) const {
  uint64_t bytes = 0;
  for (const PlannedParam& param : params_) bytes += param.of(rank).result.num_bytes();
  return bytes;
}

namespace {

const View& view_after(const ShardRecipe& recipe, size_t step) {
  return step + 1 < recipe.eager_steps.size() ? recipe.eager_steps[step + 1].input : recipe.result;
}

}  // namespace

uint64_t EagerStep::output_bytes() const {
  TensorMeta meta;
  meta.dtype = output.dtype;
  meta.shape = output.shape;
  return View::of(meta).num_bytes();
}

uint64_t ShardPlan::peak_eager_bytes(int64_t rank) const {
  uint64_t most = 0;
  for (const PlannedParam& param : params_) {
    const ShardRecipe& recipe = param.of(rank);
    for (size_t i = 0; i < recipe.eager_steps.size(); ++i) {
      // The input, the output, and what is gathered from the output for the next step.
      const EagerStep& step = recipe.eager_steps[i];
      most = std::max(
          most, step.output_bytes() + step.input.num_bytes() + view_after(recipe, i).num_bytes());
    }
  }
  return most;
}

}  // namespace weft::io
