#include "weft/nn/linear/cuda_linear.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>

#include <span>
#include <utility>
#include <variant>

#include "weft/core/error.h"
#include "weft/cuda/kernels/multiply.h"
#include "weft/nn/linear/dense_linear.h"
#include "weft/nn/linear/linear_parts.h"
#include "weft/nn/linear/quantized_linear.h"
#include "weft/quant/torch_dtype.h"

namespace weft::nn {
namespace {

constexpr char kCudaLinear[] = "nn.CudaLinear";

std::span<const uint8_t> bytes_of(const at::Tensor& part) {
  if (!part.defined()) return {};
  return {static_cast<const uint8_t*>(part.const_data_ptr()), part.nbytes()};
}

cuda::Matrix upload(const at::Tensor& w) {
  const bool is_half = w.scalar_type() == at::kHalf || w.scalar_type() == at::kBFloat16;
  const at::Tensor numbers = (is_half ? w.detach() : w.detach().to(at::kFloat)).contiguous();
  cuda::HostMatrix host;
  host.view.out = static_cast<int32_t>(w.size(0));
  host.view.in = static_cast<int32_t>(w.size(1));
  host.view.numbers = quant::floating_dtype(numbers.scalar_type()).value();
  host.data = bytes_of(numbers);
  return cuda::Matrix(host);
}

// Whether kernels take its codes: they read eight at a time.
bool fits(const quant::AffineTensor& w) {
  return w.in_features() % cuda::kUnit == 0 && w.group_size % cuda::kUnit == 0;
}

cuda::Matrix upload(const quant::AffineTensor& w) {
  cuda::HostMatrix host;
  host.view.out = static_cast<int32_t>(w.out_features());
  host.view.in = static_cast<int32_t>(w.in_features());
  host.view.bits = static_cast<int32_t>(w.bits);
  host.view.units_per_group = static_cast<int32_t>(w.group_size / cuda::kUnit);
  host.view.scale_numbers = quant::floating_dtype(w.scales.scalar_type()).value();
  const at::Tensor offsets =
      w.offsets.defined() ? w.offsets.to(w.scales.scalar_type()) : at::Tensor();
  host.data = bytes_of(w.packed);
  host.scales = bytes_of(w.scales);
  host.offsets = bytes_of(offsets);
  return cuda::Matrix(host);
}

// In bfloat16 where that is exact.
cuda::Matrix upload_values(const at::Tensor& w) {
  const at::Tensor half = w.to(at::kBFloat16);
  return upload(half.to(at::kFloat).equal(w) ? half : w);
}

cuda::Matrix upload(const LinearLike& linear) {
  if (const auto* dense = dynamic_cast<const DenseLinearImpl*>(&linear))
    return upload(dense->weight);
  const auto* quantized = dynamic_cast<const QuantizedLinearImpl*>(&linear);
  if (quantized != nullptr) {
    const auto* affine = std::get_if<quant::AffineTensor>(&quantized->weight);
    if (affine != nullptr && fits(*affine)) return upload(*affine);
  }
  return upload_values(linear.dense_weight().to(at::kFloat).contiguous());
}

// Memory of the GPU for inputs and outputs, which the next call uses again: calls follow each
// other in one stream.
struct Scratch {
  cuda::Buffer in, out;
};
Scratch& scratch() {
  static Scratch only;
  return only;
}

}  // namespace

std::shared_ptr<LinearLike> on_cuda(const LinearLike& linear) {
  const at::Tensor bias = linear.bias_or_undefined();
  return std::make_shared<CudaLinearImpl>(
      upload(linear), bias.defined() ? bias.detach().to(at::kFloat).contiguous() : bias);
}

CudaLinearImpl::CudaLinearImpl(cuda::Matrix weight_in, at::Tensor bias_in)
    : weight(std::move(weight_in)) {
  check_bias(bias_in, out_features(), kCudaLinear);
  if (bias_in.defined()) bias = register_buffer("bias", std::move(bias_in));
}

at::Tensor CudaLinearImpl::forward(const at::Tensor& x) {
  check_input(x, in_features(), kCudaLinear);
  core::check<core::ConfigError>(
      !at::GradMode::is_enabled() || !x.requires_grad(), kCudaLinear,
      ": a gradient: expected a weight of the CPU; do it before nn::on_cuda");
  const at::Tensor numbers = x.to(at::kFloat).contiguous();
  auto shape = x.sizes().vec();
  shape.back() = out_features();
  at::Tensor y = at::empty(shape, at::kFloat);
  const int64_t rows = numbers.numel() / in_features();
  Scratch& memory = scratch();
  memory.in.make_room(static_cast<int64_t>(numbers.nbytes()));
  memory.out.make_room(static_cast<int64_t>(y.nbytes()));
  memory.in.upload(numbers.const_data_ptr(), static_cast<int64_t>(numbers.nbytes()));
  const cuda::Product product = {weight.view(), memory.out.as<float>()};
  cuda::multiply({&product, 1}, memory.in.as<const float>(), rows);
  memory.out.download(y.mutable_data_ptr(), static_cast<int64_t>(y.nbytes()));
  if (bias.defined()) y += bias;
  return y.to(x.scalar_type());
}

at::Tensor CudaLinearImpl::rows(const at::Tensor& indices) {
  const at::Tensor wanted = indices.to(at::kLong).contiguous();
  core::check<core::ShapeError>(
      wanted.numel() == 0 ||
          (wanted.min().item<int64_t>() >= 0 && wanted.max().item<int64_t>() < out_features()),
      kCudaLinear, ".rows: an index is outside of 0 to ", out_features() - 1);
  auto shape = indices.sizes().vec();
  shape.push_back(in_features());
  at::Tensor y = at::empty(shape, at::kFloat);
  Scratch& memory = scratch();
  memory.in.make_room(static_cast<int64_t>(wanted.nbytes()));
  memory.out.make_room(static_cast<int64_t>(y.nbytes()));
  memory.in.upload(wanted.const_data_ptr(), static_cast<int64_t>(wanted.nbytes()));
  cuda::read_rows(weight.view(), memory.in.as<const int64_t>(), wanted.numel(),
                  memory.out.as<float>());
  memory.out.download(y.mutable_data_ptr(), static_cast<int64_t>(y.nbytes()));
  return y;
}

at::Tensor CudaLinearImpl::dense_weight() const {
  // Reading changes nothing but scratch memory.
  return const_cast<CudaLinearImpl*>(this)->rows(at::arange(out_features(), at::kLong));
}

}  // namespace weft::nn
