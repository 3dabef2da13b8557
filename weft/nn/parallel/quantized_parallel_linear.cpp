#include "weft/nn/parallel/quantized_parallel_linear.h"

#include <memory>
#include <utility>

#include "weft/core/error.h"
#include "weft/nn/linear/new_linear.h"
#include "weft/nn/linear/quantized_linear.h"

namespace weft::nn {
namespace {

struct QuantizedSizes {
  int64_t in_features, out_features;
  bool bias;
  int64_t group_size, bits;
};

NewLinear draw(const QuantizedSizes& sizes, const LinearCut& cut) {
  NewLinearSpec spec;
  spec.in_features = sizes.in_features;
  spec.out_features = sizes.out_features;
  spec.bias = sizes.bias;
  return new_linear(spec, cut);
}

quant::QuantizedMatrix quantized(const NewLinear& made, const QuantizedSizes& sizes) {
  return quant::quantize_affine(made.inner->weight.detach(), sizes.bits, sizes.group_size,
                                at::kFloat);
}

NewParallelLinear new_rows(const QuantizedSizes& sizes, const dist::Group& group) {
  const LinearCut cut = strided_cut(ShardKind::kAllToSharded, sizes.out_features, 1, group,
                                    "nn.QuantizedAllToShardedLinear");
  const NewLinear made = draw(sizes, cut);
  auto inner = std::make_shared<QuantizedLinearImpl>(quantized(made, sizes), made.inner->bias);
  return {std::move(inner), cut, {}};
}

// The range with the quant groups that it cuts.
shard::Range in_groups(const shard::Range& range, int64_t group_size) {
  const int64_t start = range.start / group_size * group_size;
  const int64_t end = (range.end() + group_size - 1) / group_size * group_size;
  return {start, end - start};
}

// Every rank quantizes the groups that it has a part of, so that all of them see the whole's.
NewParallelLinear new_columns(const QuantizedSizes& sizes, const dist::Group& group) {
  constexpr const char* kName = "nn.QuantizedShardedToAllLinear: in_features";
  core::check<core::ShapeError>(sizes.group_size >= 1 && sizes.in_features % sizes.group_size == 0,
                                kName, " ", sizes.in_features,
                                ", expected a multiple of the group size ", sizes.group_size);
  const int64_t unit = column_unit_of(sizes.in_features, sizes.group_size, group.size());
  const LinearCut cut{ShardKind::kShardedToAll,
                      shard::make_layout({1, {}, unit}, sizes.in_features, group.size(), kName),
                      group};
  LinearCut drawn = cut;
  for (auto& ranges : drawn.layout.ranges) {
    for (shard::Range& range : ranges) range = in_groups(range, sizes.group_size);
  }
  NewLinear made = draw(sizes, drawn);
  const shard::Range own = cut.layout.of(group.rank()).front();
  const shard::Range place{own.start % sizes.group_size, own.length};
  quant::QuantizedMatrix weight =
      quant::slice(quantized(made, sizes), {0, sizes.out_features}, place);
  auto inner =
      std::make_shared<QuantizedLinearImpl>(std::move(weight), at::Tensor(), sizes.group_size);
  return {std::move(inner), cut, std::move(made.row_bias)};
}

}  // namespace

QuantizedAllToShardedLinearImpl::QuantizedAllToShardedLinearImpl(int64_t in_features,
                                                                 int64_t out_features, bool bias,
                                                                 int64_t group_size, int64_t bits,
                                                                 const dist::Group& group)
    : Cloned(new_rows({in_features, out_features, bias, group_size, bits}, group)) {}

QuantizedShardedToAllLinearImpl::QuantizedShardedToAllLinearImpl(int64_t in_features,
                                                                 int64_t out_features, bool bias,
                                                                 int64_t group_size, int64_t bits,
                                                                 const dist::Group& group)
    : Cloned(new_columns({in_features, out_features, bias, group_size, bits}, group)) {}

}  // namespace weft::nn
