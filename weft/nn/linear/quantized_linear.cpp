#include "weft/nn/linear/quantized_linear.h"

#include <ATen/ops/matmul.h>
#include <torch/csrc/autograd/custom_function.h>

#include <string_view>
#include <utility>

#include "weft/nn/linear/linear_parts.h"

namespace weft::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// A weight may be given its memory by the first operation that uses it (train's frozen shares): its
// kernels read by pointer, so there has to be one before.
const quant::QuantizedMatrix& announced(const quant::QuantizedMatrix& weight) {
  std::visit([](const auto& matrix) { matrix.packed.detach(); }, weight);
  return weight;
}

struct WeightHolder : torch::CustomClassHolder {
  explicit WeightHolder(quant::QuantizedMatrix w) : weight(std::move(w)) {}
  quant::QuantizedMatrix weight;
};

// The kernel records no gradient; the input's is g w, with w dequantized for the moment.
struct QuantizedMatmulFunction : torch::autograd::Function<QuantizedMatmulFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            const c10::intrusive_ptr<WeightHolder>& holder) {
    context->saved_data["weight"] = c10::IValue::make_capsule(holder);
    return quant::matmul(x, announced(holder->weight));
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto holder =
        c10::static_intrusive_pointer_cast<WeightHolder>(context->saved_data["weight"].toCapsule());
    const at::Tensor weight = quant::dequantize(announced(holder->weight), grads[0].scalar_type());
    return {at::matmul(grads[0], weight), at::Tensor()};
  }
};

}  // namespace

QuantizedLinearImpl::QuantizedLinearImpl(quant::QuantizedMatrix weight_in, at::Tensor bias_in,
                                         int64_t whole_group_size)
    : weight(std::move(weight_in)),
      whole_group_size_(whole_group_size == 0 ? quant::group_size(weight) : whole_group_size) {
  quant::check_quantized(weight, "nn.QuantizedLinear");
  check_bias(bias_in, out_features(), "nn.QuantizedLinear");
  for (const auto& [name, tensor] : quant::parts_of(weight)) {
    *tensor = register_buffer(name == std::string_view("packed") ? "weight" : name, *tensor);
  }
  if (bias_in.defined()) bias = register_buffer("bias", std::move(bias_in));
}

at::Tensor QuantizedLinearImpl::forward(const at::Tensor& x) {
  check_input(x, in_features(), "nn.QuantizedLinear");
  const bool needs_grad = at::GradMode::is_enabled() && x.requires_grad();
  const at::Tensor y =
      needs_grad ? QuantizedMatmulFunction::apply(x, c10::make_intrusive<WeightHolder>(weight))
                 : quant::matmul(x, announced(weight));
  return bias.defined() ? y + bias.to(y.scalar_type()) : y;
}

void QuantizedLinearImpl::to(torch::Dtype dtype, bool non_blocking) {
  if (bias.defined()) bias.set_data(bias.to(dtype, non_blocking));
}

void QuantizedLinearImpl::to(torch::Device device, torch::Dtype dtype, bool non_blocking) {
  to(device, non_blocking);
  to(dtype, non_blocking);
}

std::shared_ptr<QuantizedLinearImpl> QuantizedLinearImpl::copied(
    const std::optional<torch::Device>& device) const {
  quant::QuantizedMatrix parts = weight;
  for (const auto& [name, tensor] : quant::parts_of(parts)) *tensor = copy_of(*tensor, device);
  auto copy = std::make_shared<QuantizedLinearImpl>(std::move(parts), copy_of(bias, device),
                                                    whole_group_size_);
  copy->train(is_training());
  return copy;
}

at::Tensor QuantizedLinearImpl::rows(const at::Tensor& indices) {
  return quant::rows(announced(weight), indices);
}

at::Tensor QuantizedLinearImpl::dense_weight() const {
  return quant::dequantize(announced(weight), at::kFloat);
}

int64_t column_unit_of(int64_t in_features, int64_t group_size, int64_t n) {
  // Runs of 8 elements are whole bytes with any number of bits.
  constexpr int64_t kByteRun = 8;
  int64_t unit = group_size;
  while (in_features / unit < n && unit % (2 * kByteRun) == 0) unit /= 2;
  return unit;
}

int64_t QuantizedLinearImpl::column_unit(int64_t n) const {
  return column_unit_of(in_features(), quant::group_size(weight), n);
}

std::shared_ptr<LinearLike> QuantizedLinearImpl::shard(const LinearCut& cut) const {
  check_shardable(*this, cut, "nn.QuantizedLinear");
  const auto& ranges = cut.layout.of(cut.group.rank());
  const bool by_rows = cut.kind == ShardKind::kAllToSharded;
  return std::make_shared<QuantizedLinearImpl>(
      quant::select(weight, cut.layout.dim, ranges),
      by_rows && bias.defined() ? own_part(bias, cut) : at::Tensor(), whole_group_size_);
}

std::shared_ptr<LinearLike> QuantizedLinearImpl::unshard(const LinearCut& cut,
                                                         const at::Tensor& row_bias) const {
  const bool by_rows = cut.kind == ShardKind::kAllToSharded;
  const int64_t run =
      by_rows ? quant::group_size(weight) : cut.layout.common_run(whole_group_size_);
  const quant::QuantizedMatrix shards = gather_shards(quant::regroup(weight, run), cut);
  const auto order = cut.layout.gather_ranges();
  const auto whole = quant::select(shards, cut.layout.dim, order);
  at::Tensor whole_bias = row_bias.defined() ? row_bias.detach().clone() : at::Tensor();
  if (by_rows && bias.defined()) whole_bias = gather_whole(bias, cut);
  return std::make_shared<QuantizedLinearImpl>(quant::regroup(whole, whole_group_size_),
                                               whole_bias);
}

}  // namespace weft::nn
