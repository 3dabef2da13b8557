#include "weft/nn/recurrent/short_convolution.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/pad.h>
#include <ATen/ops/zeros.h>

#include <utility>

#include "weft/core/error.h"

namespace weft::nn {
namespace {

// x_BTc, zero where the token `lag` before is of another document.
at::Tensor within_documents(const at::Tensor& x_BTc, const at::Tensor& documents_BT, int64_t lag) {
  const int64_t tokens = documents_BT.size(1);
  if (lag >= tokens) return x_BTc;
  const at::Tensor is_same =
      documents_BT.narrow(1, lag, tokens - lag) == documents_BT.narrow(1, 0, tokens - lag);
  const at::Tensor mask_BT = at::pad(is_same.to(x_BTc.scalar_type()), {lag, 0}, "constant", 1.0);
  return x_BTc * mask_BT.unsqueeze(2);
}

}  // namespace

ShortConvolutionImpl::ShortConvolutionImpl(at::Tensor weight_in, shard::Layout layout,
                                           bool requires_grad)
    : layout_(std::move(layout)) {
  core::check<core::ShapeError>(weight_in.dim() == 3 && weight_in.size(1) == 1,
                                "nn.ShortConvolution: weight ", core::list_text(weight_in.sizes()),
                                ", expected [channels, 1, taps]");
  weight = register_parameter("weight", std::move(weight_in), requires_grad);
}

at::Tensor ShortConvolutionImpl::forward(const at::Tensor& x_BTc, const at::Tensor& documents_BT,
                                         const at::Tensor& state_BPc) {
  const int64_t tokens = x_BTc.size(1), past = num_past();
  const at::Tensor before_BPc =
      state_BPc.defined() ? state_BPc.to(x_BTc.scalar_type())
                          : at::zeros({x_BTc.size(0), past, x_BTc.size(2)}, x_BTc.options());
  const at::Tensor all_BSc = at::cat({before_BPc, x_BTc}, 1);
  at::Tensor y_BTc;
  for (int64_t tap = 0; tap <= past; ++tap) {
    at::Tensor part_BTc = all_BSc.narrow(1, tap, tokens) * weight.select(2, tap).select(1, 0);
    const int64_t lag = past - tap;
    if (documents_BT.defined() && lag > 0) {
      part_BTc = within_documents(part_BTc, documents_BT, lag);
    }
    y_BTc = y_BTc.defined() ? y_BTc + part_BTc : part_BTc;
  }
  if (state_BPc.defined()) state_BPc.copy_(all_BSc.detach().narrow(1, tokens, past));
  return y_BTc;
}

std::optional<shard::Layout> ShortConvolutionImpl::layout_of(std::string_view /*parameter*/) const {
  return layout_;
}

void ShortConvolutionImpl::exchange_members(const MemberExchange& exchange) {
  weight = parameters_["weight"] = exchange.parameter("weight", weight);
}

}  // namespace weft::nn
