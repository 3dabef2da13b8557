// A model of one's own, cut over a model axis and trained over a data axis:
//   weft launch -n 2 -- build/own_model 2        two ranks share each layer
//   weft launch -n 2 -- build/own_model 1        two ranks share the sequences
// The losses are the same on any number of ranks.
#include <torch/optim/adamw.h>

#include <cstdlib>
#include <iostream>

#include "weft/dist.h"
#include "weft/nn.h"
#include "weft/train.h"

namespace nn = weft::nn;

// B rows, D width, F hidden features.
constexpr int64_t kB = 8, kD = 16, kF = 40;

struct BlockImpl : torch::nn::Module {
  BlockImpl()
      : up(register_module("up", nn::Linear(kD, kF))),
        down(register_module("down", nn::Linear(kF, kD))) {}
  void shard(const weft::dist::Group& group) {
    up = nn::shard_linear(up, "all-to-sharded", group);
    down = nn::shard_linear(down, "sharded-to-all", group);
  }
  at::Tensor forward(const at::Tensor& x_BD) { return x_BD + down(at::silu(up(x_BD))); }
  nn::Linear up, down;
};
TORCH_MODULE(Block);

struct ModelImpl : torch::nn::Module {
  ModelImpl()
      : first(register_module("first", Block())), second(register_module("second", Block())) {}
  at::Tensor forward(const at::Tensor& x_BD) { return second(first(x_BD)); }
  Block first, second;
};
TORCH_MODULE(Model);

int main(int argc, char** argv) {
  const weft::dist::World world = weft::dist::init();
  const int64_t model_ranks = argc > 1 ? std::atoll(argv[1]) : 1;
  const weft::dist::Mesh mesh(world,
                              {{"data", world.size() / model_ranks}, {"model", model_ranks}});

  at::manual_seed(1);
  Model model;
  for (Block& block : {std::ref(model->first), std::ref(model->second)}) {
    block->shard(mesh.group({"model"}));
  }
  const auto sharded =
      weft::train::shard_module(*model, mesh, {model->first.ptr(), model->second.ptr()});

  // libtorch's optimizer on the parts that this rank owns.
  std::vector<at::Tensor> masters;
  for (const weft::train::OwnedPart& part : sharded->owned_parts()) {
    masters.push_back(part.master.detach());
    masters.back().mutable_grad() = part.gradient;
  }
  torch::optim::AdamW optimizer(masters, torch::optim::AdamWOptions(1e-2));

  const at::Tensor x_BD = at::randn({kB, kD}), target_BD = at::randn({kB, kD});
  const weft::dist::Group& data = sharded->groups().data;
  const int64_t rows = kB / data.size();
  for (int step = 0; step < 5; ++step) {
    // This rank's rows; the sum over ranks is the loss of the whole batch.
    const auto own = [&](const at::Tensor& all) { return all.narrow(0, data.rank() * rows, rows); };
    const at::Tensor loss =
        (model->forward(own(x_BD)) - own(target_BD)).square().sum() / static_cast<double>(kB * kD);
    at::Tensor total = loss.detach().clone();
    sharded->backward(loss);
    sharded->finish_gradients();
    optimizer.step();
    sharded->publish();
    data.all_reduce(total);
    if (world.rank() == 0) std::cout << "step " << step << " loss " << total.item<float>() << "\n";
  }
}
