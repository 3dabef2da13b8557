// Levanter's conceptual implementation of partially sharded data parallel, line by line:
// tests/sources/README.md has the table.

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/optim/adamw.h>

#include <vector>

#include "tests/support/run_ranks.h"
#include "weft/dist.h"
#include "weft/nn.h"
#include "weft/train.h"

namespace nn = weft::nn;
namespace dist = weft::dist;
namespace train = weft::train;

namespace {

constexpr int64_t batch_size = 24, Embed = 6, Mlp = 10;
constexpr int num_steps = 4;

struct ModelImpl : torch::nn::Module {
  ModelImpl()
      : up(register_module("up", nn::Linear(Embed, Mlp))),
        down(register_module("down", nn::Linear(Mlp, Embed))) {}
  at::Tensor forward(const at::Tensor& x) { return down(at::silu(up(x))); }
  nn::Linear up, down;
};
TORCH_MODULE(Model);

Model new_model() {
  at::manual_seed(21);
  return Model();
}

// The mean over the examples that it is given.
at::Tensor loss_fn(Model& model, const at::Tensor& examples) {
  return (model(examples) - examples.flip(1)).square().mean();
}

at::Tensor new_data(int step) {
  at::manual_seed(static_cast<uint64_t>(30 + step));
  return at::randn({batch_size, Embed});
}

// Each step's loss of plain libtorch, on one process and the whole batch at once.
std::vector<double> whole_losses() {
  Model model = new_model();
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(1e-2));
  std::vector<double> losses;
  for (int step = 0; step < num_steps; ++step) {
    optimizer.zero_grad();
    const at::Tensor loss = loss_fn(model, new_data(step));
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

int64_t num_elements(const std::vector<train::OwnedPart>& parts) {
  int64_t count = 0;
  for (const auto& part : parts) count += part.master.numel();
  return count;
}

// compute, params, grads and opt_state: who holds what.
void expect_levanters_mappings(const dist::Mesh& mesh, const train::ShardedModule& sharded,
                               Model& model) {
  const train::ShardedUnit& unit = *sharded.units().front();
  // compute: {batch: (R, DP)}
  const dist::Group& batch = sharded.groups().batch;
  const int64_t R = mesh.size("replica"), DP = mesh.size("data");
  ASSERT_EQ(batch.size(), R * DP);
  ASSERT_EQ(batch.rank(), mesh.coordinate("replica") * DP + mesh.coordinate("data"));
  // params: {embed: dp, rep: R}: in float32, on each replica; grads are [rep, *param.axes]
  const auto held = static_cast<uint64_t>(unit.layout().length()) * sizeof(float);
  EXPECT_EQ(unit.parameter_bytes() * static_cast<uint64_t>(DP), held);
  EXPECT_EQ(unit.gradient_bytes() * static_cast<uint64_t>(DP), held);
  // opt_state: {embed: (r, dp)}: every element is some rank's of replica and data, and one's alone
  at::Tensor owned = at::full({1}, num_elements(sharded.owned_parts()), at::kLong);
  EXPECT_LE(owned.item<int64_t>() * R * DP, unit.layout().length());
  batch.all_reduce(owned);
  int64_t num_parameters = 0;
  for (const auto& info : nn::describe_parameters(*model)) num_parameters += info.tensor.numel();
  EXPECT_EQ(owned.item<int64_t>(), num_parameters);
}

void expect_levanters_steps(const dist::World& world, int64_t R, int64_t DP, int64_t TP,
                            int64_t microbatches) {
  // Mesh is now (R, DP, TP)
  const dist::Mesh mesh(world, {{"replica", R}, {"data", DP}, {"model", TP}});
  Model model = new_model();
  // TP works as before.
  model->up = nn::shard_linear(model->up, "all-to-sharded", mesh.group({"model"}));
  model->down = nn::shard_linear(model->down, "sharded-to-all", mesh.group({"model"}));
  const auto sharded = train::shard_module(*model, mesh, {});
  expect_levanters_mappings(mesh, *sharded, model);

  std::vector<at::Tensor> opt_params;
  for (const train::OwnedPart& part : sharded->owned_parts()) {
    opt_params.push_back(part.master.detach());
    opt_params.back().mutable_grad() = part.gradient;
  }
  torch::optim::AdamW optimizer(opt_params, torch::optim::AdamWOptions(1e-2));
  const std::vector<double> expected = whole_losses();
  const dist::Group& batch = sharded->groups().batch;
  const dist::Traffic at_start = sharded->groups().replica.traffic();
  for (int step = 0; step < num_steps; ++step) {
    // data = data.rearrange("{batch: (rep b)} -> ... rep (batch: b) ...", rep=Replica)
    const int64_t rows = batch_size / batch.size();
    const at::Tensor data = new_data(step).narrow(0, batch.rank() * rows, rows);
    // grad_buffers = hax.vmap(grad_accum, Replica)(model, data)
    at::Tensor loss = at::zeros({1}, at::kDouble);
    const dist::Traffic before = sharded->groups().replica.traffic();
    for (const at::Tensor& microbatch : data.chunk(microbatches)) {
      const at::Tensor part =
          loss_fn(model, microbatch) / static_cast<double>(batch.size() * microbatches);
      loss += part.item<double>();
      sharded->backward(part);
    }
    EXPECT_EQ(sharded->groups().replica.traffic(), before) << "independently on each replica";
    // grad_buffers = shard_with_axis_mapping(hax.mean(grad_buffers, axis=Replica),
    // opt_state_mapping)
    sharded->finish_gradients();
    // updates, opt_state = optimizer.update(opt_state, grad_buffers, params=model)
    optimizer.step();
    // updates = hax.shard_with_axis_mapping(updates, param_mapping); eqx.apply_updates(model,
    // updates)
    sharded->publish();
    batch.all_reduce(loss);
    EXPECT_NEAR(loss.item<double>(), expected[static_cast<size_t>(step)], 1e-5) << "step " << step;
  }
  EXPECT_EQ(sharded->groups().replica.traffic() == at_start, R == 1);
}

TEST(LevanterMappings, TheDraftStepByStep) {
  weft::test::run_ranks(4, [](const dist::World& world) {
    for (const int64_t microbatches : {1, 3}) {
      expect_levanters_steps(world, 2, 2, 1, microbatches);
      expect_levanters_steps(world, 2, 1, 2, microbatches);
      expect_levanters_steps(world, 1, 4, 1, microbatches);
      expect_levanters_steps(world, 4, 1, 1, microbatches);
    }
  });
}

}  // namespace
