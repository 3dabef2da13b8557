#include "weft/train/trainer/train_step.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "weft/core/error.h"
#include "weft/train/trainer/exact_step.h"

namespace weft::train {
namespace {

// The lowest world rank for which `is_bad` holds; the group's size if there is none. Collective.
int64_t first_bad_rank(const dist::Group& all, bool is_bad) {
  at::Tensor rank = at::full({1}, is_bad ? all.rank() : all.size(), at::kLong);
  all.all_reduce(rank, dist::ReduceOp::kMin);
  return rank.item<int64_t>();
}

void refuse_not_finite(const dist::Group& all, bool is_finite_here, const char* what, double value,
                       int64_t step) {
  const int64_t rank = first_bad_rank(all, !is_finite_here);
  core::check<core::ConfigError>(
      rank == all.size(), "train: step ", step, ": ", what, " is ", value, " (first on rank ", rank,
      "), expected a finite number; nothing of this step was kept: resume with a lower "
      "optimizer.lr, more schedule.warmup_steps or train.clip_norm");
}

StepLosses pipelined_losses(ShardedModule& sharded, const StageModel& model,
                            const std::vector<Microbatch>& microbatches, double divisor) {
  StepLosses losses;
  losses.own = run_pipeline(sharded, model, microbatches, divisor);
  at::Tensor total = at::full({1}, losses.own, at::kDouble);
  sharded.groups().batch.all_reduce(total);
  // From the last stage to all.
  sharded.groups().pipe.all_reduce(total);
  losses.total = total.item<double>();
  return losses;
}

}  // namespace

LossSum language_model_loss(models::CausalLM& model) {
  return [&model](const Microbatch& microbatch) {
    return model.loss_sum(model.forward(microbatch.tokens), microbatch.targets_BT);
  };
}

int64_t count_targets(const std::vector<Microbatch>& microbatches, const dist::Group& batch) {
  at::Tensor count = at::zeros({1}, at::kLong);
  for (const Microbatch& microbatch : microbatches) count += microbatch.num_targets;
  batch.all_reduce(count);
  return count.item<int64_t>();
}

StepResult compute_gradients(ShardedModule& sharded, const LossSum& loss_sum,
                             const std::vector<Microbatch>& microbatches, int64_t step) {
  StageModel whole;
  whole.forward = [&loss_sum](const Microbatch& microbatch, const at::Tensor&) {
    return loss_sum(microbatch);
  };
  return compute_gradients(sharded, whole, microbatches, step);
}

StepResult compute_gradients(ShardedModule& sharded, const StageModel& model,
                             const std::vector<Microbatch>& microbatches, int64_t step) {
  const MeshGroups& groups = sharded.groups();
  StepResult result;
  result.num_targets = count_targets(microbatches, groups.batch);
  const auto divisor = static_cast<double>(std::max<int64_t>(1, result.num_targets));
  const bool is_exact = !sharded.exact_groups().empty();
  const StepLosses losses = is_exact ? run_exact_step(sharded, model, microbatches)
                                     : pipelined_losses(sharded, model, microbatches, divisor);
  const double own_loss = losses.own;
  result.loss = is_exact ? losses.total / divisor : losses.total;
  sharded.finish_gradients();
  if (is_exact) divide_gradients(sharded, divisor);
  result.gradient_norm = sharded.gradient_norm();
  const bool is_fine = std::isfinite(result.loss) && std::isfinite(result.gradient_norm);
  if (!is_fine) {
    refuse_not_finite(groups.all, std::isfinite(own_loss), "the loss", result.loss, step);
    refuse_not_finite(groups.all, false, "the gradient's norm", result.gradient_norm, step);
  }
  return result;
}

double clip_scale(double gradient_norm, double limit) {
  if (limit <= 0) return 1;
  return std::min(1.0, limit / (gradient_norm + 1e-6));
}

}  // namespace weft::train
