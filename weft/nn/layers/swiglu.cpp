#include "weft/nn/layers/swiglu.h"

#include <ATen/Parallel.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/clamp_max.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <torch/csrc/autograd/custom_function.h>

#include "weft/core/error.h"
#include "weft/nn/layers/element_kernel.h"

namespace weft::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kGrain = 1 << 15;

const char* bytes(const at::Tensor& x) { return static_cast<const char*>(x.const_data_ptr()); }
char* bytes(at::Tensor& x) { return static_cast<char*>(x.mutable_data_ptr()); }

struct SwigluFunction : torch::autograd::Function<SwigluFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& gate_in,
                            const at::Tensor& up_in) {
    const at::Tensor gate = gate_in.contiguous(), up = up_in.contiguous();
    context->save_for_backward({gate, up});
    at::Tensor y = at::empty_like(gate);
    const auto* kernel = element_kernel(gate);
    const auto size = static_cast<int64_t>(gate.element_size());
    at::parallel_for(0, gate.numel(), kGrain, [&](int64_t begin, int64_t end) {
      const int64_t at = begin * size;
      kernel->swiglu(bytes(gate) + at, bytes(up) + at, bytes(y) + at, end - begin);
    });
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    core::check<core::ConfigError>(!at::GradMode::is_enabled(),
                                   "nn.swiglu: a gradient of the gradient is not defined; call "
                                   "backward without create_graph");
    const variable_list saved = context->get_saved_variables();
    const at::Tensor d_y = grads[0].contiguous();
    at::Tensor d_gate = at::empty_like(saved[0]), d_up = at::empty_like(saved[1]);
    const auto* kernel = element_kernel(d_y);
    const auto size = static_cast<int64_t>(d_y.element_size());
    at::parallel_for(0, d_y.numel(), kGrain, [&](int64_t begin, int64_t end) {
      const int64_t at = begin * size;
      kernel->swiglu_backward(bytes(saved[0]) + at, bytes(saved[1]) + at, bytes(d_y) + at,
                              bytes(d_gate) + at, bytes(d_up) + at, end - begin);
    });
    return {d_gate, d_up};
  }
};

}  // namespace

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up) {
  core::check<core::ShapeError>(
      gate.sizes() == up.sizes() && gate.scalar_type() == up.scalar_type(), "nn.swiglu: gate ",
      c10::toString(gate.scalar_type()), " ", core::list_text(gate.sizes()), " and up ",
      c10::toString(up.scalar_type()), " ", core::list_text(up.sizes()), ", expected the same");
  if (element_kernel(gate) == nullptr) return at::mul(at::silu(gate), up);
  return SwigluFunction::apply(gate, up);
}

at::Tensor gated(const at::Tensor& gate, const at::Tensor& up, const Gating& gating) {
  switch (gating.activation) {
    case Activation::kSilu:
      return swiglu(gate, up);
    case Activation::kGeluTanh:
      return at::gelu(gate, "tanh") * up;
    case Activation::kClamped: {
      const at::Tensor g = at::clamp_max(gate, gating.limit);
      const at::Tensor u = at::clamp(up, -gating.limit, gating.limit);
      return g * at::sigmoid(g * kernels::kClampedSlope) * (u + 1);
    }
  }
  core::fail<core::InternalError>("nn.gated: an unknown activation");
}

}  // namespace weft::nn
