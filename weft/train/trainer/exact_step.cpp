#include "weft/train/trainer/exact_step.h"

#include <ATen/ops/zeros.h>

#include <utility>

namespace weft::train {
namespace {

at::Tensor row_of(const at::Tensor& rows, int64_t row) {
  return rows.defined() ? rows.narrow(0, row, 1).contiguous() : rows;
}

// `losses` has this rank's in their places and zeros in the others'.
double total_in_order(at::Tensor losses, const dist::Group& batch) {
  batch.all_reduce(losses);
  double total = 0;
  for (int64_t i = 0; i < losses.size(0); ++i) total += losses.const_data_ptr<double>()[i];
  return total;
}

}  // namespace

std::vector<Microbatch> single_sequences(const std::vector<Microbatch>& microbatches) {
  std::vector<Microbatch> all;
  for (const Microbatch& each : microbatches) {
    const int64_t tokens = each.tokens.ids_BT.size(1);
    for (int64_t row = 0; row < each.tokens.ids_BT.size(0); ++row) {
      Microbatch one;
      one.tokens.ids_BT = row_of(each.tokens.ids_BT, row);
      one.tokens.documents_BT = row_of(each.tokens.documents_BT, row);
      one.tokens.positions_BT = row_of(each.tokens.positions_BT, row);
      one.tokens.step = each.tokens.step;
      one.tokens.first_token = each.tokens.first_token + row * tokens;
      one.targets_BT = row_of(each.targets_BT, row);
      one.num_targets = (one.targets_BT >= 0).sum().item<int64_t>();
      all.push_back(std::move(one));
    }
  }
  return all;
}

StepLosses run_exact_step(ShardedModule& sharded, const StageModel& model,
                          const std::vector<Microbatch>& microbatches) {
  const dist::Group& batch = sharded.groups().batch;
  const std::vector<Microbatch> sequences = single_sequences(microbatches);
  const int64_t first = batch.rank() * std::ssize(sequences);
  at::Tensor losses = at::zeros({batch.size() * std::ssize(sequences)}, at::kDouble);
  StepLosses result;
  for (int64_t i = 0; i < std::ssize(sequences); ++i) {
    const at::Tensor loss = model.forward(sequences[static_cast<size_t>(i)], {});
    const auto value = loss.item<double>();
    losses[first + i] = value;
    result.own += value;
    sharded.backward(loss);
  }
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
    int64_t place = (round * batch.size() + batch.rank()) * microbatch;
    for (const Microbatch& one : single_sequences({microbatches[static_cast<size_t>(round)]})) {
      losses[place++] = model.forward(one, {}).item<double>();
    }
  }
  sharded.release();
  return total_in_order(losses, batch);
}

}  // namespace weft::train
