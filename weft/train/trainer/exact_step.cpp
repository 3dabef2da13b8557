#include "weft/train/trainer/exact_step.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros.h>

#include <utility>

namespace weft::train {
namespace {

at::Tensor joined(const std::vector<Microbatch>& microbatches,
                  at::Tensor (*part)(const Microbatch&)) {
  std::vector<at::Tensor> parts;
  for (const Microbatch& each : microbatches) parts.push_back(part(each));
  return parts.front().defined() ? at::cat(parts) : at::Tensor();
}

Microbatch as_one(const std::vector<Microbatch>& microbatches) {
  Microbatch one = microbatches.front();
  one.tokens.ids_BT = joined(microbatches, [](const Microbatch& m) { return m.tokens.ids_BT; });
  one.tokens.documents_BT =
      joined(microbatches, [](const Microbatch& m) { return m.tokens.documents_BT; });
  one.tokens.positions_BT =
      joined(microbatches, [](const Microbatch& m) { return m.tokens.positions_BT; });
  one.targets_BT = joined(microbatches, [](const Microbatch& m) { return m.targets_BT; });
  return one;
}

at::Tensor rows_of(const at::Tensor& tensor, const shard::Range& rows) {
  return tensor.defined() ? tensor.narrow(0, rows.start, rows.length) : tensor;
}

Microbatch group_of(const Microbatch& all, const SequenceGroup& group) {
  Microbatch part;
  part.tokens.ids_BT = rows_of(all.tokens.ids_BT, group.sequences);
  part.tokens.documents_BT = rows_of(all.tokens.documents_BT, group.sequences);
  part.tokens.positions_BT = rows_of(all.tokens.positions_BT, group.sequences);
  part.tokens.step = all.tokens.step;
  part.tokens.order = group.order;
  part.targets_BT = rows_of(all.targets_BT, group.sequences);
  part.num_targets = (part.targets_BT >= 0).sum().item<int64_t>();
  return part;
}

// `losses` has this rank's in their places and zeros in the others'.
double total_in_order(at::Tensor losses, const dist::Group& batch) {
  batch.all_reduce(losses);
  double total = 0;
  for (int64_t i = 0; i < losses.size(0); ++i) total += losses.const_data_ptr<double>()[i];
  return total;
}

}  // namespace

StepLosses run_exact_step(ShardedModule& sharded, const StageModel& model,
                          const std::vector<Microbatch>& microbatches) {
  const dist::Group& batch = sharded.groups().batch;
  const Microbatch all = as_one(microbatches);
  const int64_t own = all.targets_BT.size(0), first = batch.rank() * own;
  at::Tensor losses = at::zeros({batch.size() * own}, at::kDouble);
  StepLosses result;
  for (const SequenceGroup& group : sharded.exact_groups()) {
    const at::Tensor losses_B = model.forward(group_of(all, group), {});
    losses.narrow(0, first + group.sequences.start, group.sequences.length)
        .copy_(losses_B.detach());
    sharded.backward(losses_B, at::ones_like(losses_B));
  }
  for (int64_t i = 0; i < own; ++i) result.own += losses.const_data_ptr<double>()[first + i];
  result.total = total_in_order(losses, batch);
  return result;
}

void divide_gradients(ShardedModule& sharded, double divisor) {
  for (const OwnedPart& part : sharded.owned_parts()) part.gradient.div_(divisor);
}

double evaluate_exactly(ShardedModule& sharded, const StageModel& model,
                        const std::vector<Microbatch>& microbatches, int64_t microbatch) {
  const at::NoGradGuard no_grad;
  const dist::Group& batch = sharded.groups().batch;
  const auto rounds = std::ssize(microbatches);
  at::Tensor losses = at::zeros({rounds * batch.size() * microbatch}, at::kDouble);
  for (int64_t round = 0; round < rounds; ++round) {
    const at::Tensor losses_B = model.forward(microbatches[static_cast<size_t>(round)], {});
    const int64_t place = (round * batch.size() + batch.rank()) * microbatch;
    losses.narrow(0, place, losses_B.size(0)).copy_(losses_B);
  }
  sharded.release();
  return total_in_order(losses, batch);
}

}  // namespace weft::train
