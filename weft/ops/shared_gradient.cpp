#include "weft/ops/shared_gradient.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>
#include <vector>

#include "weft/core/error.h"

namespace weft::ops {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct LayoutHolder : torch::CustomClassHolder {
  LayoutHolder(shard::Layout l, dist::Group g) : layout(std::move(l)), group(std::move(g)) {}
  shard::Layout layout;
  dist::Group group;
};

using Holder = c10::intrusive_ptr<LayoutHolder>;

// The other ranks' gradients meet this rank's at their places in the whole.
at::Tensor summed(const at::Tensor& grad, const shard::Layout& layout, const dist::Group& group) {
  std::vector<int64_t> sizes = grad.sizes().vec();
  sizes[layout.dim] = layout.size;
  at::Tensor whole = at::zeros(sizes, grad.options());
  int64_t offset = 0;
  for (const shard::Range& range : layout.of(group.rank())) {
    whole.narrow(layout.dim, range.start, range.length)
        .copy_(grad.narrow(layout.dim, offset, range.length));
    offset += range.length;
  }
  group.all_reduce(whole);
  std::vector<at::Tensor> own;
  for (const shard::Range& range : layout.of(group.rank())) {
    own.push_back(whole.narrow(layout.dim, range.start, range.length));
  }
  return at::cat(own, layout.dim);
}

void save_layout(AutogradContext* context, const Holder& holder) {
  context->saved_data["holder"] = c10::IValue::make_capsule(holder);
}

Holder saved_layout(AutogradContext* context) {
  return c10::static_intrusive_pointer_cast<LayoutHolder>(
      context->saved_data["holder"].toCapsule());
}

// Each is the other's backward pass, so that a gradient of a gradient goes over the ranks as well.
struct SharedFunction : torch::autograd::Function<SharedFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const Holder& holder);
  static variable_list backward(AutogradContext* context, variable_list grads);
};
struct SumFunction : torch::autograd::Function<SumFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const Holder& holder);
  static variable_list backward(AutogradContext* context, variable_list grads);
};

at::Tensor SharedFunction::forward(AutogradContext* context, const at::Tensor& x,
                                   const Holder& holder) {
  save_layout(context, holder);
  return x.view_as(x);
}

variable_list SharedFunction::backward(AutogradContext* context, variable_list grads) {
  return {SumFunction::apply(grads[0], saved_layout(context)), at::Tensor()};
}

at::Tensor SumFunction::forward(AutogradContext* context, const at::Tensor& x,
                                const Holder& holder) {
  save_layout(context, holder);
  return summed(x.detach(), holder->layout, holder->group);
}

variable_list SumFunction::backward(AutogradContext* context, variable_list grads) {
  return {SharedFunction::apply(grads[0], saved_layout(context)), at::Tensor()};
}

}  // namespace

at::Tensor sum_shared_gradient(const at::Tensor& x, const shard::Layout& layout,
                               const dist::Group& group) {
  const int64_t expected = shard::total_length(layout.of(group.rank()));
  core::check<core::ShapeError>(x.dim() > layout.dim && x.size(layout.dim) == expected,
                                "ops.sum_shared_gradient: shape ", core::list_text(x.sizes()),
                                ", expected ", expected, " elements along dim ", layout.dim);
  if (group.size() == 1 || !layout.overlaps()) return x;
  return SharedFunction::apply(x, c10::make_intrusive<LayoutHolder>(layout, group));
}

}  // namespace weft::ops
