#include "weft/nn/recurrent/gated_delta_net.h"

#include <ATen/ops/exp.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softplus.h>

#include <utility>

#include "weft/core/error.h"
#include "weft/nn/recurrent/delta_rule.h"

namespace weft::nn {
namespace {

void check_sizes(const DeltaHeads& heads, const DeltaProjections& in) {
  const bool fits = in.channels_BTc.size(-1) == heads.num_channels() &&
                    in.gates_BTf.size(-1) == heads.value_features() &&
                    in.rates_BTv.size(-1) == heads.num_value_heads &&
                    in.decays_BTv.size(-1) == heads.num_value_heads;
  core::check<core::ShapeError>(
      fits, "nn.gated_delta_net: ", in.channels_BTc.size(-1), " channels, ", in.gates_BTf.size(-1),
      " gates, ", in.rates_BTv.size(-1), " rates, ", in.decays_BTv.size(-1), " decays, expected ",
      heads.num_channels(), ", ", heads.value_features(), ", ", heads.num_value_heads, ", ",
      heads.num_value_heads);
}

// Logarithms of what is kept. In float32 at least, as the file's halves would overflow.
at::Tensor kept_logs(const GatedDeltaParts& parts, const at::Tensor& decays_BTv) {
  const auto wide = [](const at::Tensor& x) {
    return x.scalar_type() == at::kDouble ? x : x.to(at::kFloat);
  };
  const at::Tensor steps_BTv = at::softplus(wide(decays_BTv) + wide(parts.step_bias->weight));
  return at::exp(wide(parts.decay_log->weight)).neg() * steps_BTv;
}

}  // namespace

HeadNumbersImpl::HeadNumbersImpl(at::Tensor weight_in, shard::Layout layout, bool requires_grad)
    : layout_(std::move(layout)) {
  core::check<core::ShapeError>(weight_in.dim() == 1, "nn.HeadNumbers: weight ",
                                core::list_text(weight_in.sizes()), ", expected [heads]");
  weight = register_parameter("weight", std::move(weight_in), requires_grad);
}

std::optional<shard::Layout> HeadNumbersImpl::layout_of(std::string_view /*parameter*/) const {
  return layout_;
}

void HeadNumbersImpl::exchange_members(const MemberExchange& exchange) {
  weight = parameters_["weight"] = exchange.parameter("weight", weight);
}

std::vector<std::vector<int64_t>> delta_state_sizes(const DeltaHeads& heads, int64_t num_past) {
  return {{num_past, heads.num_channels()},
          {heads.num_value_heads, heads.key_dim, heads.value_dim}};
}

at::Tensor gated_delta_net(const DeltaHeads& heads, GatedDeltaParts& parts,
                           const DeltaProjections& in, const at::Tensor& documents_BT,
                           const DeltaState& state) {
  check_sizes(heads, in);
  const bool has_state = !state.empty();
  const at::Tensor mixed_BTc = at::silu(parts.convolution->forward(
      in.channels_BTc, documents_BT, has_state ? state[0] : at::Tensor()));
  const auto heads_of = [&](int64_t start, int64_t count, int64_t dim) {
    return mixed_BTc.narrow(-1, start, count * dim).unflatten(-1, {count, dim});
  };
  const int64_t features = heads.key_features();
  const DeltaTokens tokens = {heads_of(0, heads.num_key_heads, heads.key_dim),
                              heads_of(features, heads.num_key_heads, heads.key_dim),
                              heads_of(2 * features, heads.num_value_heads, heads.value_dim),
                              kept_logs(parts, in.decays_BTv), at::sigmoid(in.rates_BTv)};
  const at::Tensor out_BTvV = delta_rule(tokens, documents_BT, has_state ? state[1] : at::Tensor());
  const at::Tensor gate_BTvV =
      at::silu(in.gates_BTf.unflatten(-1, {heads.num_value_heads, heads.value_dim}));
  return (parts.norm->forward(out_BTvV) * gate_BTvV).flatten(2);
}

}  // namespace weft::nn
