#include "weft/nn/linear.h"

#include <ATen/ops/embedding.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "weft/core/error.h"
#include "weft/nn/linear_shards.h"
#include "weft/ops/shared_gradient.h"

namespace weft::nn {
namespace {

using core::check;
using core::ShapeError;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

void check_input(const at::Tensor& x, int64_t in_features, const char* where) {
  check<ShapeError>(x.dim() >= 1 && x.size(-1) == in_features, where, ": input ",
                    core::list_text(x.sizes()), ", expected the last dim to be ", in_features);
}

void check_bias(const at::Tensor& bias, int64_t out_features, const char* where) {
  check<ShapeError>(!bias.defined() || (bias.dim() == 1 && bias.size(0) == out_features), where,
                    ": bias ", bias.defined() ? core::list_text(bias.sizes()) : "", ", expected [",
                    out_features, "]");
}

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

DenseLinearImpl::DenseLinearImpl(at::Tensor weight_in, at::Tensor bias_in, bool requires_grad) {
  check<ShapeError>(weight_in.dim() == 2, "nn.DenseLinear: weight ",
                    core::list_text(weight_in.sizes()), ", expected [out, in]");
  check_bias(bias_in, weight_in.size(0), "nn.DenseLinear");
  weight = register_parameter("weight", std::move(weight_in), requires_grad);
  if (bias_in.defined()) bias = register_parameter("bias", std::move(bias_in), requires_grad);
}

at::Tensor DenseLinearImpl::forward(const at::Tensor& x) {
  check_input(x, in_features(), "nn.DenseLinear");
  if (!shared_) return at::linear(x, weight, bias);
  const auto summed = [&](const at::Tensor& parameter) {
    return parameter.defined()
               ? ops::sum_shared_gradient(parameter, shared_->layout, shared_->group)
               : parameter;
  };
  return at::linear(x, summed(weight), summed(bias));
}

at::Tensor DenseLinearImpl::rows(const at::Tensor& indices) {
  return at::embedding(weight, indices);
}

int64_t DenseLinearImpl::weight_bytes() const { return static_cast<int64_t>(weight.nbytes()); }

std::shared_ptr<LinearLike> DenseLinearImpl::shard(const LinearCut& cut) const {
  const bool by_rows = cut.kind == ShardKind::kAllToSharded;
  check_shardable(*this, cut, "nn.DenseLinear");
  auto part = std::make_shared<DenseLinearImpl>(
      own_part(weight, cut), by_rows && bias.defined() ? own_part(bias, cut) : at::Tensor());
  part->weight.set_requires_grad(weight.requires_grad());
  if (part->bias.defined()) part->bias.set_requires_grad(bias.requires_grad());
  if (cut.layout.overlaps()) part->shared_ = cut;
  return part;
}

std::shared_ptr<LinearLike> DenseLinearImpl::unshard(const LinearCut& cut,
                                                     const at::Tensor& row_bias) const {
  const bool by_rows = cut.kind == ShardKind::kAllToSharded;
  at::Tensor whole_bias = row_bias.defined() ? row_bias.detach().clone() : at::Tensor();
  if (by_rows && bias.defined()) whole_bias = gather_whole(bias, cut);
  auto whole = std::make_shared<DenseLinearImpl>(gather_whole(weight, cut), whole_bias);
  whole->weight.set_requires_grad(weight.requires_grad());
  const at::Tensor& former_bias = by_rows ? bias : row_bias;
  if (whole_bias.defined()) whole->bias.set_requires_grad(former_bias.requires_grad());
  return whole;
}

QuantizedLinearImpl::QuantizedLinearImpl(quant::AffineTensor weight_in, at::Tensor bias_in)
    : weight(std::move(weight_in)) {
  quant::check_affine(weight, "nn.QuantizedLinear");
  check_bias(bias_in, weight.out_features(), "nn.QuantizedLinear");
  weight.packed = register_buffer("weight", weight.packed);
  weight.scales = register_buffer("scales", weight.scales);
  if (!weight.is_symmetric()) weight.offsets = register_buffer("offsets", weight.offsets);
  if (bias_in.defined()) bias = register_buffer("bias", std::move(bias_in));
  whole_group_size_ = weight.group_size;
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
  auto part = std::make_shared<QuantizedLinearImpl>(
      quant::select_affine(weight, cut.layout.dim, ranges),
      by_rows && bias.defined() ? own_part(bias, cut) : at::Tensor());
  part->whole_group_size_ = whole_group_size_;
  return part;
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
