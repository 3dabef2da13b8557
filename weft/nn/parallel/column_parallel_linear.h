#pragma once

#include <cstdint>

#include "weft/dist/parallelism.h"
#include "weft/nn/linear/new_linear.h"
#include "weft/nn/parallel/parallel_linear.h"

namespace weft::nn {

/// How a ColumnParallelLinear begins and what it gives.
struct ColumnParallelOptions {
  bool bias = true;
  /// The output is whole and in the whole's order on all ranks; otherwise it is this rank's shard,
  /// for a RowParallelLinear with input_is_parallel.
  bool gather_output = true;
  /// Initial values of the whole weight, which are the same on any number of ranks.
  Init init = Init::xavier_normal();
  Init bias_init = Init::zeros();
  /// The output features consist of this many equal segments, each cut on its own: a fused q, k, v
  /// has 3, a fused gate and up projection 2.
  int64_t stride = 1;
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::kCPU;
};

/// A new AllToShardedLinear with the options of Megatron's layer. y = x w^T + bias with w
/// [out, in] cut by rows. Source: Shoeybi et al. 2019, arXiv:1909.08053, section 3.
class ColumnParallelLinearImpl : public Cloned<ColumnParallelLinearImpl, AllToShardedLinearImpl> {
 public:
  /// Throws ShapeError if stride does not divide out_features, ConfigError if a rank would hold
  /// nothing. Collective, except on the meta device.
  ColumnParallelLinearImpl(int64_t in_features, int64_t out_features, const dist::Group& group,
                           const ColumnParallelOptions& options = {});
  /// Over dist::model_group().
  ColumnParallelLinearImpl(int64_t in_features, int64_t out_features,
                           const ColumnParallelOptions& options);
  /// The same with the options one by one.
  ColumnParallelLinearImpl(int64_t in_features, int64_t out_features, bool bias = true,
                           bool gather_output = true, const Init& init = Init::xavier_normal(),
                           int64_t stride = 1);

  /// x: [..., in], whole. Returns [..., out], or [..., this rank's out] without gather_output.
  /// Collective: an all-gather forward with gather_output, an all-reduce backward.
  at::Tensor forward(const at::Tensor& x) override;
  /// Draws a new whole and keeps this rank's part. Throws ConfigError unless the inner linear is
  /// dense. Collective.
  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;

  const ColumnParallelOptions& options() const { return options_; }

 private:
  ColumnParallelLinearImpl(const NewLinearSpec& spec, const LinearCut& cut,
                           const ColumnParallelOptions& options);

  ColumnParallelOptions options_;
};
TORCH_MODULE(ColumnParallelLinear);

}  // namespace weft::nn
