#include "weft/nn/quantized_linear.h"

#include <ATen/ops/matmul.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "weft/nn/linear_parts.h"

namespace weft::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct WeightHolder : torch::CustomClassHolder {
  explicit WeightHolder(quant::AffineTensor w) : weight(std::move(w)) {}
  quant::AffineTensor weight;
};

// The kernel records no gradient; the input's is g w, with w dequantized for the moment.
struct AffineMatmulFunction : torch::autograd::Function<AffineMatmulFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            const c10::intrusive_ptr<WeightHolder>& holder) {
    context->saved_data["weight"] = c10::IValue::make_capsule(holder);
    return quant::affine_matmul(x, holder->weight);
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto holder =
        c10::static_intrusive_pointer_cast<WeightHolder>(context->saved_data["weight"].toCapsule());
    return {at::matmul(grads[0], quant::dequantize(holder->weight, grads[0].scalar_type())),
            at::Tensor()};
  }
};

}  // namespace

QuantizedLinearImpl::QuantizedLinearImpl(quant::AffineTensor weight_in, at::Tensor bias_in,
                                         int64_t whole_group_size)
    : weight(std::move(weight_in)),
      whole_group_size_(whole_group_size == 0 ? weight.group_size : whole_group_size) {
  quant::check_affine(weight, "nn.QuantizedLinear");
  check_bias(bias_in, weight.out_features(), "nn.QuantizedLinear");
  weight.packed = register_buffer("weight", weight.packed);
  weight.scales = register_buffer("scales", weight.scales);
  if (!weight.is_symmetric()) weight.offsets = register_buffer("offsets", weight.offsets);
  if (bias_in.defined()) bias = register_buffer("bias", std::move(bias_in));
}

at::Tensor QuantizedLinearImpl::forward(const at::Tensor& x) {
  check_input(x, in_features(), "nn.QuantizedLinear");
  const bool needs_grad = at::GradMode::is_enabled() && x.requires_grad();
  const at::Tensor y =
      needs_grad ? AffineMatmulFunction::apply(x, c10::make_intrusive<WeightHolder>(weight))
                 : quant::affine_matmul(x, weight);
  return bias.defined() ? y + bias.to(y.scalar_type()) : y;
}

at::Tensor QuantizedLinearImpl::rows(const at::Tensor& indices) {
  return quant::affine_rows(weight, indices);
}

at::Tensor QuantizedLinearImpl::dense_weight() const {
  return quant::dequantize(weight, at::kFloat);
}

int64_t QuantizedLinearImpl::column_unit(int64_t n) const {
  // Runs of 8 elements are whole bytes with any number of bits.
  constexpr int64_t kByteRun = 8;
  int64_t unit = weight.group_size;
  while (in_features() / unit < n && unit % (2 * kByteRun) == 0) unit /= 2;
  return unit;
}

std::shared_ptr<LinearLike> QuantizedLinearImpl::shard(const LinearCut& cut) const {
  check_shardable(*this, cut, "nn.QuantizedLinear");
  const auto& ranges = cut.layout.of(cut.group.rank());
  const bool by_rows = cut.kind == ShardKind::kAllToSharded;
  return std::make_shared<QuantizedLinearImpl>(
      quant::select_affine(weight, cut.layout.dim, ranges),
      by_rows && bias.defined() ? own_part(bias, cut) : at::Tensor(), whole_group_size_);
}

std::shared_ptr<LinearLike> QuantizedLinearImpl::unshard(const LinearCut& cut,
                                                         const at::Tensor& row_bias) const {
  const bool by_rows = cut.kind == ShardKind::kAllToSharded;
  const int64_t run = by_rows ? weight.group_size : cut.layout.common_run(whole_group_size_);
  quant::AffineTensor shards = gather_shards(quant::regroup_affine(weight, run), cut);
  const auto order = cut.layout.gather_ranges();
  const auto whole = quant::select_affine(shards, cut.layout.dim, order);
  at::Tensor whole_bias = row_bias.defined() ? row_bias.detach().clone() : at::Tensor();
  if (by_rows && bias.defined()) whole_bias = gather_whole(bias, cut);
  return std::make_shared<QuantizedLinearImpl>(quant::regroup_affine(whole, whole_group_size_),
                                               whole_bias);
}

}  // namespace weft::nn
