#pragma once

#include <cstdint>

#include "weft/dist/parallelism.h"
#include "weft/nn/linear/new_linear.h"
#include "weft/nn/parallel/parallel_linear.h"

namespace weft::nn {

/// How a RowParallelLinear begins and what it takes.
struct RowParallelOptions {
  /// Whole and equal on all ranks; added once.
  bool bias = true;
  /// The input is this rank's shard, as a ColumnParallelLinear without gather_output and with the
  /// same stride leaves it; otherwise it is whole and cut here.
  bool input_is_parallel = false;
  /// Initial values of the whole weight, which are the same on any number of ranks.
  Init init = Init::xavier_normal();
  Init bias_init = Init::zeros();
  /// The input features consist of this many equal segments, each cut on its own.
  int64_t stride = 1;
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::kCPU;
};

/// A new ShardedToAllLinear with the options of Megatron's layer. y = x w^T + bias with w [out, in]
/// cut by columns. Source: Shoeybi et al. 2019, arXiv:1909.08053, section 3.
class RowParallelLinearImpl : public Cloned<RowParallelLinearImpl, ShardedToAllLinearImpl> {
 public:
  /// Throws ShapeError if stride does not divide in_features, ConfigError if a rank would hold
  /// nothing. Collective, except on the meta device.
  RowParallelLinearImpl(int64_t in_features, int64_t out_features, const dist::Group& group,
                        const RowParallelOptions& options = {});
  /// Over dist::model_group().
  RowParallelLinearImpl(int64_t in_features, int64_t out_features,
                        const RowParallelOptions& options);
  /// The same with the options one by one.
  RowParallelLinearImpl(int64_t in_features, int64_t out_features, bool bias = true,
                        bool input_is_parallel = false, const Init& init = Init::xavier_normal(),
                        int64_t stride = 1);

  /// x: [..., this rank's in] with input_is_parallel, else [..., in], whole. Returns [..., out],
  /// whole. Collective: an all-reduce forward; an all-gather backward if x was whole.
  at::Tensor forward(const at::Tensor& x) override;
  /// Draws a new whole and keeps this rank's part. Throws ConfigError unless the inner linear is
  /// dense. Collective.
  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;

  const RowParallelOptions& options() const { return options_; }

 private:
  RowParallelLinearImpl(const NewLinear& made, const LinearCut& cut,
                        const RowParallelOptions& options);
  at::Tensor own_features(const at::Tensor& x) const;

  RowParallelOptions options_;
};
TORCH_MODULE(RowParallelLinear);

}  // namespace weft::nn
