#include "weft/nn/parallel/row_parallel_linear.h"

#include <ATen/ops/cat.h>

#include <ostream>

#include "weft/core/error.h"
#include "weft/ops/collectives.h"

namespace weft::nn {
namespace {

constexpr const char* kRowParallel = "nn.RowParallelLinear";

NewLinearSpec spec_of(int64_t in_features, int64_t out_features,
                      const RowParallelOptions& options) {
  NewLinearSpec spec;
  spec.in_features = in_features;
  spec.out_features = out_features;
  spec.bias = options.bias;
  spec.init = options.init;
  spec.bias_init = options.bias_init;
  spec.dtype = options.dtype;
  spec.device = options.device;
  return spec;
}

LinearCut cut_of(int64_t in_features, const dist::Group& group, const RowParallelOptions& options) {
  return strided_cut(ShardKind::kShardedToAll, in_features, options.stride, group, kRowParallel);
}

RowParallelOptions row_options(bool bias, bool input_is_parallel, const Init& init,
                               int64_t stride) {
  RowParallelOptions options;
  options.bias = bias;
  options.input_is_parallel = input_is_parallel;
  options.init = init;
  options.stride = stride;
  return options;
}

}  // namespace

RowParallelLinearImpl::RowParallelLinearImpl(int64_t in_features, int64_t out_features,
                                             const RowParallelOptions& options)
    : RowParallelLinearImpl(in_features, out_features, dist::model_group(), options) {}

RowParallelLinearImpl::RowParallelLinearImpl(int64_t in_features, int64_t out_features, bool bias,
                                             bool input_is_parallel, const Init& init,
                                             int64_t stride)
    : RowParallelLinearImpl(in_features, out_features,
                            row_options(bias, input_is_parallel, init, stride)) {}

RowParallelLinearImpl::RowParallelLinearImpl(int64_t in_features, int64_t out_features,
                                             const dist::Group& group,
                                             const RowParallelOptions& options)
    : RowParallelLinearImpl(new_linear(spec_of(in_features, out_features, options),
                                       cut_of(in_features, group, options)),
                            cut_of(in_features, group, options), options) {}

RowParallelLinearImpl::RowParallelLinearImpl(const NewLinear& made, const LinearCut& cut,
                                             const RowParallelOptions& options)
    : Cloned(made.inner, cut.group, cut.layout, made.row_bias, true), options_(options) {}

// This rank's shard of a whole x: its features in the order of the ranks, then cut.
at::Tensor RowParallelLinearImpl::own_features(const at::Tensor& x) const {
  core::check<core::ShapeError>(x.dim() >= 1 && x.size(-1) == in_features(), kRowParallel,
                                ": input ", core::list_text(x.sizes()),
                                ", expected the last dim to be ", in_features(),
                                "; a shard needs input_is_parallel");
  if (options_.stride == 1) return ops::mp_scatter(x, -1, group(), layout().lengths());
  std::vector<at::Tensor> pieces;
  for (int64_t rank = 0; rank < group().size(); ++rank) {
    for (const shard::Range& range : layout().of(rank)) {
      pieces.push_back(x.narrow(-1, range.start, range.length));
    }
  }
  return ops::mp_scatter(at::cat(pieces, -1), -1, group(), layout().lengths());
}

at::Tensor RowParallelLinearImpl::forward(const at::Tensor& x) {
  const bool is_cut = options_.input_is_parallel || group().size() == 1;
  return ShardedToAllLinearImpl::forward(is_cut ? x : own_features(x));
}

void RowParallelLinearImpl::reset_parameters() {
  reset_linear(*inner(), bias, spec_of(in_features(), out_features(), options_), *cut(),
               kRowParallel);
}

void RowParallelLinearImpl::pretty_print(std::ostream& stream) const {
  stream << "weft::nn::RowParallelLinear(in_features=" << in_features()
         << ", out_features=" << out_features() << ", ranks=" << group().size() << ")";
}

}  // namespace weft::nn
