// Two layers cut over the ranks that run it: weft launch -n 2 -- build/cut_layer
#include <iostream>

#include "weft/dist.h"
#include "weft/nn.h"

int main() {
  const weft::dist::World world = weft::dist::init();
  at::manual_seed(1);
  weft::nn::AllToShardedLinear up(8, 32);
  weft::nn::ShardedToAllLinear down(32, 8);
  const at::Tensor y = down(at::relu(up(at::ones({1, 8}))));
  if (world.rank() == 0) std::cout << "sum " << y.sum().item<float>() << "\n";
}
