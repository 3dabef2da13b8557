// Two layers that follow each other need no gather between them, in both spellings:
//   build/weft launch -n 3 -- build/examples/chains
// Compares outputs and gradients with the same layers in one process.

#include <ATen/ATen.h>
#include <torch/nn/functional/embedding.h>

#include <cstdio>
#include <string>

#include "weft/core/error.h"
#include "weft/dist/parallelism.h"
#include "weft/nn/parallel/column_parallel_linear.h"
#include "weft/nn/parallel/parallel_embedding.h"
#include "weft/nn/parallel/row_parallel_linear.h"
#include "weft/nn/parallel/shard_linear.h"

namespace {

constexpr int64_t kVocab = 50, kD = 20, kF = 31;  // cut over any number of ranks up to 20

bool is_close(const std::string& what, const at::Tensor& got, const at::Tensor& expected,
              bool is_loud) {
  const double difference = (got - expected).abs().max().item<double>();
  if (is_loud) std::printf("%-34s |sharded - whole| <= %.1e\n", what.c_str(), difference);
  return difference <= 1e-5 * expected.abs().max().item<double>() + 1e-6;
}

// Layers that begin cut: no rank ever holds a whole, and the numbers don't depend on the ranks.
bool new_layers(const weft::dist::Group& group) {
  using namespace weft::nn;
  ParallelEmbedding embedding(kVocab, kD, group);
  ColumnParallelLinear up(kD, kF, group, ColumnParallelOptions{.gather_output = false});
  RowParallelLinear down(kF, kD, group, RowParallelOptions{.input_is_parallel = true});

  const at::Tensor ids = at::arange(kVocab);
  const at::Tensor y = down->forward(at::silu(up->forward(embedding->forward(ids))));

  // The masters are gathered for the comparison and never kept.
  const at::Tensor table = embedding->master_weight().requires_grad_(true);
  const at::Tensor x = at::embedding(table, ids);
  const at::Tensor h = at::silu(at::linear(x, up->master_weight(), up->master_bias()));
  const at::Tensor expected = at::linear(h, down->master_weight(), down->master_bias());
  y.sum().backward();
  expected.sum().backward();
  const auto columns = weft::shard::part(kD, group.size(), group.rank());
  const at::Tensor own_grad = table.grad().narrow(1, columns.start, columns.length);
  const bool is_loud = group.rank() == 0;
  return is_close("new layers, output", y, expected, is_loud) &&
         is_close("new layers, embedding's gradient", embedding->weight.grad(), own_grad, is_loud);
}

// Layers of a model that exists: each rank keeps a copy of its part and the whole can go.
bool cut_layers(const weft::dist::Group& group) {
  using weft::nn::ShardKind;
  at::manual_seed(1);  // the same whole on all ranks
  torch::nn::Linear up(kD, kF), down(kF, kD);
  const auto up_part = shard_linear(up, ShardKind::kAllToSharded, group);
  const auto down_part = shard_linear(down, ShardKind::kShardedToAll, group);

  const at::Tensor x = at::randn({4, kD}), x_whole = x.clone();
  x.requires_grad_(true);
  x_whole.requires_grad_(true);
  const at::Tensor y = down_part->forward(at::silu(up_part->forward(x)));
  const at::Tensor expected = down->forward(at::silu(up->forward(x_whole)));
  y.sum().backward();
  expected.sum().backward();
  const bool is_loud = group.rank() == 0;
  return is_close("cut layers, output", y, expected, is_loud) &&
         is_close("cut layers, gradient of x", x.grad(), x_whole.grad(), is_loud);
}

}  // namespace

int main() try {
  const auto world = weft::dist::World::from_env();
  const auto parallelism = weft::dist::init_parallelism(world, world.size(), 1);
  const weft::dist::Group& group = weft::dist::parallel_group_info().mp;
  return new_layers(group) && cut_layers(group) ? 0 : 1;
} catch (const weft::core::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return error.exit_code();
}
