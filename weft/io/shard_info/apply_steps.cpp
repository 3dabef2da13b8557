#include "weft/io/shard_info/apply_steps.h"

#include <algorithm>

#include "weft/core/error.h"

namespace weft::io {

using core::check;
using core::ConfigError;
using core::fail;
using core::FormatError;
using core::list_text;
using core::quote;
using core::ShapeError;

namespace {

// Runs `action` and puts `where` before the message of what it throws. A user's function may throw
// anything.
template <class Action>
auto with_where(const std::string& where, const Action& action) {
  try {
    return action();
  } catch (const ShapeError& error) {
    fail<ShapeError>(where, ": ", error.what());
  } catch (const ConfigError& error) {
    fail<ConfigError>(where, ": ", error.what());
  } catch (const FormatError& error) {
    fail<FormatError>(where, ": ", error.what());
  } catch (const std::exception& error) {
    fail<ConfigError>(where, ": the function failed: ", quote(error.what()));
  }
}

// A step with its function looked up.
struct FoundStep {
  const ShardStep* step = nullptr;
  FoundFunction function;
  std::vector<Argument> arguments;
  std::string where;

  bool is_shard() const {
    return function.view != nullptr && function.view->kind == FunctionKind::kShard;
  }
};

FoundStep find_step(const ShardStep& step, bool is_stacked, const FunctionTable& functions,
                    const std::string& where) {
  FoundStep found;
  found.step = &step;
  found.where = where;
  found.function = functions.find(step.function, where);
  found.arguments = found.function.arguments(step.arguments, where);
  const ViewFunction* view = found.function.view;
  if (view == nullptr) return found;
  check_arguments(*view, found.arguments, where);
  check<ConfigError>(!is_stacked || view->kind != FunctionKind::kShard, where,
                     ": gives one rank's shard, but the last step must give all along dim 0; use "
                     "weft.stack_shards, or weft's form of shard_info");
  check<ConfigError>(is_stacked || view->kind != FunctionKind::kStack, where,
                     ": has a number of shards in it; use shard or shard_segments");
  return found;
}

std::vector<FoundStep> find_steps(const ParamRule& rule, const FunctionTable& functions,
                                  const std::string& where) {
  std::vector<FoundStep> steps;
  for (const ShardStep& step : rule.steps) {
    steps.push_back(
        find_step(step, rule.is_stacked, functions,
                  core::join(where, ": step ", steps.size() + 1, " ", quote(step.function))));
  }
  const auto num_shards = std::count_if(steps.begin(), steps.end(),
                                        [](const FoundStep& step) { return step.is_shard(); });
  check<ConfigError>(num_shards <= 1, where, ": ", num_shards,
                     " steps that cut for ranks, expected at most 1; a second would lose elements");
  return steps;
}

// A parameter between two steps.
struct Progress {
  std::vector<View> inputs;
  std::vector<EagerStep> eager_steps;
};

View memory_view(const std::string& name, const TensorType& type) {
  TensorMeta meta;
  meta.name = name;
  meta.dtype = type.dtype;
  meta.shape = type.shape;
  meta.file = kMemoryFile;
  View view = View::of(meta);
  meta.num_bytes = view.num_bytes();
  return View::of(meta);
}

View run_eager(const FoundStep& step, Progress& progress) {
  const View& input = progress.inputs[0];
  const TensorType output = step.function.eager->output_type(input.type(), step.arguments);
  progress.eager_steps.push_back(
      {step.step->function, step.function.eager, step.arguments, input, output});
  return memory_view(core::join("result of ", step.step->function), output);
}

void apply_step(const FoundStep& step, int64_t num_ranks, int64_t rank, Progress& progress) {
  const ShardStep& given = *step.step;
  const View& first = progress.inputs[0];
  const bool takes_many = step.function.view != nullptr && step.function.view->takes_many;
  check<ShapeError>(takes_many || progress.inputs.size() == 1, step.where,
                    ": takes one tensor, got ", progress.inputs.size(),
                    "; begin with cat, stack or combine_qkv");
  check<ShapeError>(!given.input_shape || *given.input_shape == first.shape(), step.where,
                    ": input ", list_text(first.shape()), ", expected ",
                    list_text(given.input_shape.value_or(first.shape())),
                    " as shard_info says; check that it is the right model");
  const View result = with_where(step.where, [&] {
    return step.function.view != nullptr
               ? step.function.view->apply({progress.inputs, step.arguments, num_ranks, rank,
                                            given.output ? &*given.output : nullptr})
               : run_eager(step, progress);
  });
  check<ShapeError>(!given.output || *given.output == result.type(), step.where, ": ",
                    to_text(first.type()), " gives ", to_text(result.type()), ", expected ",
                    to_text(given.output.value_or(result.type())),
                    " as shard_info says; correct its shape, type or extras");
  progress.inputs.assign(1, result);
}

void check_num_shards(const FoundStep& last, const TensorType& source, const TensorType& result,
                      int64_t num_ranks) {
  if (!result.shape.empty() && result.shape[0] == num_ranks) return;
  fail<ConfigError>(last.where, ": ", to_text(source), " gives ", to_text(result),
                    ", expected dim 0 to be the ", num_ranks,
                    " ranks; make shard_info for that number, or in weft's form for any");
}

ShardRecipe finished(const Progress& progress, const std::string& where) {
  check<ShapeError>(progress.inputs.size() == 1, where, ": ", progress.inputs.size(),
                    " tensors and no step that combines them; begin with cat, stack or "
                    "combine_qkv");
  ShardRecipe recipe{progress.eager_steps, progress.inputs[0]};
  with_where(where, [&] {
    recipe.result.num_bytes();
    for (const EagerStep& step : recipe.eager_steps) step.input.num_bytes();
    return 0;
  });
  return recipe;
}

std::vector<ShardRecipe> stacked_recipes(const std::vector<FoundStep>& steps, Progress progress,
                                         int64_t num_ranks, const std::string& where) {
  const TensorType source = progress.inputs[0].type();
  const FoundStep& last = steps.back();
  // What is declared is looked at first: it says more than a function that can't divide.
  if (last.step->output) check_num_shards(last, source, *last.step->output, num_ranks);
  for (const FoundStep& step : steps) apply_step(step, num_ranks, 0, progress);
  const View all = progress.inputs[0];
  check_num_shards(last, source, all.type(), num_ranks);
  std::vector<ShardRecipe> recipes;
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    progress.inputs.assign(1, all.select(0, rank));
    recipes.push_back(finished(progress, core::join(where, ": rank ", rank)));
  }
  return recipes;
}

}  // namespace

std::vector<ShardRecipe> apply_steps(const ParamSources& param, int64_t num_ranks,
                                     const FunctionTable& functions, const std::string& where) {
  Progress progress;
  for (const TensorMeta* tensor : param.tensors) {
    progress.inputs.push_back(with_where(where, [&] { return View::of(*tensor); }));
  }
  if (param.rule == nullptr || param.rule->steps.empty()) return {finished(progress, where)};
  const std::vector<FoundStep> steps = find_steps(*param.rule, functions, where);
  if (param.rule->is_stacked) return stacked_recipes(steps, progress, num_ranks, where);
  const auto shard = std::find_if(steps.begin(), steps.end(),
                                  [](const FoundStep& step) { return step.is_shard(); });
  for (auto step = steps.begin(); step != shard; ++step) apply_step(*step, 1, 0, progress);
  if (shard == steps.end()) return {finished(progress, where)};
  std::vector<ShardRecipe> recipes;
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    Progress mine = progress;
    for (auto step = shard; step != steps.end(); ++step) apply_step(*step, num_ranks, rank, mine);
    recipes.push_back(finished(mine, core::join(where, ": rank ", rank)));
  }
  return recipes;
}

}  // namespace weft::io
