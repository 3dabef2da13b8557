#include "weft/nn/ordered/sequence_sums.h"

#include <utility>

#include "weft/core/error.h"

namespace weft::nn::ordered {

SequenceOrder without_order(int64_t sequences) {
  shard::SumPlan plan;
  for (int64_t i = 0; i < sequences; ++i) plan.pieces.push_back({i, 1});
  plan.nodes = {0};
  plan.slots = 1;
  return std::make_shared<const shard::SumPlan>(std::move(plan));
}

int64_t rows_of_each(int64_t rows, const shard::SumPlan& order) {
  const auto sequences = std::ssize(order.pieces);
  core::check<core::ShapeError>(sequences > 0 && rows % sequences == 0 && order.nodes.size() == 1,
                                "nn.ordered: ", rows, " rows of ", sequences,
                                " sequences, expected as many of each");
  return rows / sequences;
}

at::Tensor summed_parts(const at::Tensor& parts, const shard::SumPlan& order) {
  for (const shard::SumStep& step : order.steps) parts[step.to].add_(parts[step.from]);
  return parts[order.nodes.front()];
}

}  // namespace weft::nn::ordered
