#include "weft/nn/linear/panel_linear.h"

#include <ATen/ops/from_blob.h>

#include <map>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "weft/core/error.h"
#include "weft/nn/linear/adapt.h"
#include "weft/nn/linear/dense_linear.h"
#include "weft/nn/linear/linear_parts.h"
#include "weft/nn/linear/quantized_linear.h"
#include "weft/quant/kernels/panel_select.h"
#include "weft/quant/panels/ordered_product.h"

namespace weft::nn {
namespace {

constexpr char kPanelLinear[] = "nn.PanelLinear";

}  // namespace

// Products in panels add biases in float32.
std::shared_ptr<LinearLike> in_panels(quant::PanelMatrix weight, const at::Tensor& bias) {
  return std::make_shared<PanelLinearImpl>(
      std::move(weight), bias.defined() ? bias.detach().to(at::kFloat).contiguous() : bias);
}

std::shared_ptr<LinearLike> in_panels(const LinearLike& linear, const PanelOptions& options) {
  const auto made = [&](quant::PanelMatrix weight, const at::Tensor& bias) {
    weight.activation_bits = options.activation_bits;
    weight.is_exact = options.is_exact;
    return in_panels(std::move(weight), bias);
  };
  if (const auto* dense = dynamic_cast<const DenseLinearImpl*>(&linear)) {
    if (!quant::fits_panels(dense->weight)) return nullptr;
    const auto halves = options.is_exact ? quant::HalfPanels::kPlain : quant::HalfPanels::kShortest;
    return made(quant::to_panels(dense->weight, halves), dense->bias);
  }
  const auto* quantized = dynamic_cast<const QuantizedLinearImpl*>(&linear);
  if (quantized == nullptr) return nullptr;
  if (const auto* floats = std::get_if<quant::MicroscaledTensor>(&quantized->weight)) {
    if (floats->bits() != 4) return nullptr;
    const quant::AffineTensor integers = quant::to_affine(*floats);
    if (!quant::fits_panels(integers)) return nullptr;
    return made(quant::to_panels(integers, options.activation_bits), quantized->bias);
  }
  const auto* affine = std::get_if<quant::AffineTensor>(&quantized->weight);
  if (affine == nullptr || !quant::fits_panels(*affine)) return nullptr;
  return made(quant::to_panels(*affine, options.activation_bits), quantized->bias);
}

PanelLinearImpl::PanelLinearImpl(quant::PanelMatrix weight_in, at::Tensor bias_in)
    : weight(std::move(weight_in)) {
  check_bias(bias_in, out_features(), kPanelLinear);
  weight.data = register_buffer("weight", weight.data);
  if (bias_in.defined()) bias = register_buffer("bias", std::move(bias_in));
}

at::Tensor PanelLinearImpl::forward(const at::Tensor& x) {
  check_input(x, in_features(), kPanelLinear);
  core::check<core::ConfigError>(!at::GradMode::is_enabled() || !x.requires_grad(), kPanelLinear,
                                 ": a gradient: expected a weight of the file's order; do it "
                                 "before nn::put_in_panels");
  const at::Tensor y = quant::panel_matmul(x, weight);
  return bias.defined() ? y + bias.to(y.scalar_type()) : y;
}

at::Tensor PanelLinearImpl::rows(const at::Tensor& indices) {
  return quant::panel_rows(weight, indices);
}

void PanelLinearImpl::to(torch::Dtype, bool) {}

void PanelLinearImpl::to(torch::Device device, torch::Dtype, bool non_blocking) {
  to(device, non_blocking);
}

std::shared_ptr<PanelLinearImpl> PanelLinearImpl::copied(
    const std::optional<torch::Device>& device) const {
  quant::PanelMatrix own = weight;
  own.data = copy_of(own.data, device);
  auto copy = std::make_shared<PanelLinearImpl>(std::move(own), copy_of(bias, device));
  copy->train(is_training());
  return copy;
}

at::Tensor PanelLinearImpl::dense_weight() const { return quant::panel_values(weight); }

int64_t put_in_panels(torch::nn::Module& module, int64_t activation_bits) {
  // A tied embedding and head share one inner linear, and keep sharing one.
  std::map<const LinearLike*, std::vector<LinearHolder*>> holders;
  for (const HeldLinear& each : find_linears(module)) {
    holders[each.holder->inner().get()].push_back(each.holder);
  }
  int64_t count = 0;
  for (const auto& [former, all] : holders) {
    const auto made = in_panels(*former, {.activation_bits = activation_bits});
    if (made == nullptr) continue;
    for (LinearHolder* holder : all) holder->set_inner(made);
    ++count;
  }
  return count;
}

at::Tensor ordered_linear(const LinearLike& linear, const at::Tensor& x, dist::OrderedSum& sum) {
  const auto* panels = dynamic_cast<const PanelLinearImpl*>(&linear);
  core::check<core::ConfigError>(
      panels != nullptr && panels->weight.is_exact,
      "nn.ordered_linear: a weight that is not in panels with exact sums, expected one; ask for "
      "the usual sums");
  const quant::kernels::PanelKernel& kernel = quant::kernels::active_panel_kernel();
  const at::Tensor wide = x.detach().to(at::kFloat).contiguous();
  const int64_t in = x.size(-1), rows = x.numel() / in;
  quant::PanelInputs inputs(quant::PanelInputs::Wants::of(panels->weight));
  const auto* const from = wide.const_data_ptr<float>();
  inputs.take(kernel, {rows, in, rows},
              [&](int64_t row, float* /*room*/) { return from + row * in; });
  const quant::PanelView view(panels->weight);
  const int64_t stride = view.padded_out(), count = rows * stride;
  const quant::OrderedProduct product{view, {sum.room(count), stride, count}};
  quant::multiply_ordered(kernel, inputs, std::span(&product, 1), sum.plan());
  auto shape = x.sizes().vec();
  shape.back() = panels->out_features();
  return at::from_blob(sum.sum(count), {rows, stride}, at::kFloat)
      .narrow(1, 0, panels->out_features())
      .to(x.scalar_type(), /*non_blocking=*/false, /*copy=*/true)
      .reshape(shape);
}

}  // namespace weft::nn
