// The model of two layers on MLX's page about tensor parallelism:
//   build/weft launch -n 2 -- build/examples/mlx_two_layers
#include <cstdio>

#include "weft/dist.h"
#include "weft/nn.h"

namespace nn = weft::nn;

int main() {
  const weft::dist::World world = weft::dist::init();
  at::manual_seed(1);
  const at::Tensor x = at::rand({4, 2});   // batch size 4, feature size 2
  nn::AllToShardedLinear l1(2, 2, false);  // initialize the layer
  const at::Tensor l1_out = l1(x);         // (4, 1) output on two ranks
  nn::ShardedToAllLinear l2(2, 2, false);
  const at::Tensor l2_out = l2(l1_out);  // (4, 2) output

  const at::Tensor whole = at::linear(at::linear(x, l1->master_weight()), l2->master_weight());
  const double worst = (l2_out - whole).abs().max().item<double>();
  if (world.rank() == 0) {
    std::printf("%d ranks: l1_out (%ld, %ld), l2_out (%ld, %ld), largest difference %.1e\n",
                world.size(), l1_out.size(0), l1_out.size(1), l2_out.size(0), l2_out.size(1),
                worst);
  }
  return worst < 1e-6 ? 0 : 1;
}
