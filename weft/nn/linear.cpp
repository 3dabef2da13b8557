#include "weft/nn/linear.h"

#include <ATen/ops/embedding.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/matmul.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "weft/core/error.h"

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
  return at::linear(x, weight, bias);
}

at::Tensor DenseLinearImpl::rows(const at::Tensor& indices) {
  return at::embedding(weight, indices);
}

int64_t DenseLinearImpl::weight_bytes() const { return static_cast<int64_t>(weight.nbytes()); }

QuantizedLinearImpl::QuantizedLinearImpl(quant::AffineTensor weight_in, at::Tensor bias_in)
    : weight(std::move(weight_in)) {
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

}  // namespace weft::nn
