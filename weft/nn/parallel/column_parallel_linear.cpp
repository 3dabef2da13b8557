#include "weft/nn/parallel/column_parallel_linear.h"

#include <ATen/ops/cat.h>

#include <ostream>

#include "weft/ops/collectives.h"

namespace weft::nn {
namespace {

constexpr const char* kColumnParallel = "nn.ColumnParallelLinear";

NewLinearSpec spec_of(int64_t in_features, int64_t out_features,
                      const ColumnParallelOptions& options) {
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

ColumnParallelOptions options_of(bool bias, bool gather_output, const Init& init, int64_t stride) {
  ColumnParallelOptions options;
  options.bias = bias;
  options.gather_output = gather_output;
  options.init = init;
  options.stride = stride;
  return options;
}

}  // namespace

ColumnParallelLinearImpl::ColumnParallelLinearImpl(int64_t in_features, int64_t out_features,
                                                   const ColumnParallelOptions& options)
    : ColumnParallelLinearImpl(in_features, out_features, dist::model_group(), options) {}

ColumnParallelLinearImpl::ColumnParallelLinearImpl(int64_t in_features, int64_t out_features,
                                                   bool bias, bool gather_output, const Init& init,
                                                   int64_t stride)
    : ColumnParallelLinearImpl(in_features, out_features,
                               options_of(bias, gather_output, init, stride)) {}

ColumnParallelLinearImpl::ColumnParallelLinearImpl(int64_t in_features, int64_t out_features,
                                                   const dist::Group& group,
                                                   const ColumnParallelOptions& options)
    : ColumnParallelLinearImpl(spec_of(in_features, out_features, options),
                               strided_cut(ShardKind::kAllToSharded, out_features, options.stride,
                                           group, kColumnParallel),
                               options) {}

ColumnParallelLinearImpl::ColumnParallelLinearImpl(const NewLinearSpec& spec, const LinearCut& cut,
                                                   const ColumnParallelOptions& options)
    : Cloned(new_linear(spec, cut).inner, cut.group, cut.layout), options_(options) {}

at::Tensor ColumnParallelLinearImpl::forward(const at::Tensor& x) {
  const at::Tensor y = AllToShardedLinearImpl::forward(x);
  if (!options_.gather_output || group().size() == 1) return y;
  const at::Tensor end_to_end = ops::mp_gather(y, -1, group(), layout().lengths());
  if (options_.stride == 1) return end_to_end;
  std::vector<at::Tensor> pieces;
  for (const shard::Range& range : layout().gather_ranges()) {
    pieces.push_back(end_to_end.narrow(-1, range.start, range.length));
  }
  return at::cat(pieces, -1);
}

void ColumnParallelLinearImpl::reset_parameters() {
  at::Tensor no_row_bias;
  reset_linear(*inner(), no_row_bias, spec_of(in_features(), out_features(), options_), *cut(),
               kColumnParallel);
}

void ColumnParallelLinearImpl::pretty_print(std::ostream& stream) const {
  stream << "weft::nn::ColumnParallelLinear(in_features=" << in_features()
         << ", out_features=" << out_features() << ", ranks=" << group().size() << ")";
}

}  // namespace weft::nn
