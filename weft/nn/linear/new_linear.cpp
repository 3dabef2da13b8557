#include "weft/nn/linear/new_linear.h"

#include <utility>

#include "weft/core/error.h"

namespace weft::nn {

using core::check;
using core::ConfigError;
using core::ShapeError;

LinearCut strided_cut(ShardKind kind, int64_t features, int64_t stride, const dist::Group& group,
                      const char* name) {
  const bool by_rows = kind == ShardKind::kAllToSharded;
  const std::string what = core::join(name, by_rows ? ": out_features" : ": in_features");
  check<ShapeError>(stride >= 1 && features >= 1 && features % stride == 0, what, " ", features,
                    " in ", stride, " equal segments (stride), expected a multiple");
  const shard::Split split{by_rows ? 0 : 1,
                           std::vector<int64_t>(static_cast<size_t>(stride), features / stride), 1};
  return {kind, shard::make_layout(split, features, group.size(), what), group};
}

NewLinear new_linear(const NewLinearSpec& spec, const LinearCut& cut) {
  check<ShapeError>(spec.in_features >= 1 && spec.out_features >= 1, "nn.new_linear: weight [",
                    spec.out_features, ", ", spec.in_features, "], expected at least [1, 1]");
  // What each parameter is drawn from, beside the layer's seed.
  constexpr uint64_t kWeightStream = 0, kBiasStream = 1;
  const bool by_rows = cut.kind == ShardKind::kAllToSharded;
  const std::vector<shard::Range>& mine = cut.layout.of(cut.group.rank());
  const uint64_t seed = spec.device.is_meta() ? 0 : agreed_seed(cut.group);
  at::Tensor weight = make_shard(
      spec.init,
      {{spec.out_features, spec.in_features}, cut.layout.dim, mine, spec.dtype, spec.device}, seed,
      kWeightStream);
  at::Tensor bias;
  if (spec.bias) {
    const Init init = spec.bias_init.value_or(Init::linear_default_bias(spec.in_features));
    ShardSpec part{{spec.out_features}, 0, {}, spec.dtype, spec.device};
    if (by_rows) part.ranges = mine;
    bias = make_shard(init, part, seed, kBiasStream);
  }
  NewLinear made;
  made.inner =
      std::make_shared<DenseLinearImpl>(std::move(weight), by_rows ? bias : at::Tensor(), true);
  if (!by_rows) made.row_bias = std::move(bias);
  return made;
}

void reset_linear(LinearLike& inner, at::Tensor& row_bias, NewLinearSpec spec, const LinearCut& cut,
                  const char* name) {
  auto* dense = dynamic_cast<DenseLinearImpl*>(&inner);
  check<ConfigError>(dense != nullptr, name,
                     ".reset_parameters: the inner linear is not dense; reset it before it is "
                     "quantized or adapted");
  spec.dtype = dense->weight.scalar_type();
  spec.device = dense->weight.device();
  const at::NoGradGuard no_grad;
  const NewLinear fresh = new_linear(spec, cut);
  if (dense->weight.is_meta()) return;
  dense->weight.copy_(fresh.inner->weight);
  if (dense->bias.defined()) dense->bias.copy_(fresh.inner->bias);
  if (row_bias.defined()) row_bias.copy_(fresh.row_bias);
}

}  // namespace weft::nn
