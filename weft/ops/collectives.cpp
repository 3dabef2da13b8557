#include "weft/ops/collectives.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "weft/core/error.h"
#include "weft/shard/split.h"

namespace weft::ops {
namespace {

using dist::Group;
using dist::ReduceOp;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

// Collectives overwrite their argument, so they get memory of their own.
at::Tensor reduced(const at::Tensor& x, const Group& group, ReduceOp op) {
  at::Tensor sum = x.detach().clone(at::MemoryFormat::Contiguous);
  group.all_reduce(sum, op);
  return sum;
}

std::vector<int64_t> balanced_sizes(int64_t length, const Group& group) {
  std::vector<int64_t> sizes;
  for (int64_t rank = 0; rank < group.size(); ++rank) {
    sizes.push_back(shard::part(length, group.size(), rank).length);
  }
  return sizes;
}

// This rank's piece along dim, with memory of its own so that the whole can be released.
at::Tensor own_piece(const at::Tensor& x, int64_t dim, const std::vector<int64_t>& sizes,
                     int64_t rank) {
  int64_t start = 0;
  for (int64_t r = 0; r < rank; ++r) start += sizes[r];
  return x.narrow(dim, start, sizes[rank]).clone(at::MemoryFormat::Contiguous);
}

int64_t wrap_dim(const at::Tensor& x, int64_t dim, const char* where) {
  core::check<core::ShapeError>(dim >= -x.dim() && dim < x.dim(), where, ": dim ", dim,
                                " of a tensor with ", x.dim(), " dims; expected ", -x.dim(), " to ",
                                x.dim() - 1);
  return dim < 0 ? dim + x.dim() : dim;
}

// What a backward pass needs of the forward call. A Group is no IValue, so it travels in a holder.
struct CallHolder : torch::CustomClassHolder {
  CallHolder(Group g, int64_t d, std::vector<int64_t> s, ReduceOp o)
      : group(std::move(g)), dim(d), sizes(std::move(s)), op(o) {}
  Group group;
  int64_t dim;
  std::vector<int64_t> sizes;
  ReduceOp op;
};

using Call = c10::intrusive_ptr<CallHolder>;

Call make_call(const Group& group, int64_t dim = 0, std::vector<int64_t> sizes = {},
               ReduceOp op = ReduceOp::kSum) {
  return c10::make_intrusive<CallHolder>(group, dim, std::move(sizes), op);
}

void save(AutogradContext* context, const Call& call) {
  context->saved_data["call"] = c10::IValue::make_capsule(call);
}

Call saved(AutogradContext* context) {
  return c10::static_intrusive_pointer_cast<CallHolder>(context->saved_data["call"].toCapsule());
}

// A function and the one that its backward pass is: copy and reduce, scatter and gather, gather and
// reduce-scatter of a sequence. Backward calls its partner as a function of its own, so that a
// gradient of a gradient goes over the ranks as well.
struct CopyFunction : Function<CopyFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const Call& call);
  static variable_list backward(AutogradContext* context, variable_list grads);
};
struct ReduceFunction : Function<ReduceFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const Call& call);
  static variable_list backward(AutogradContext* context, variable_list grads);
};
struct ScatterFunction : Function<ScatterFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const Call& call);
  static variable_list backward(AutogradContext* context, variable_list grads);
};
struct GatherFunction : Function<GatherFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const Call& call);
  static variable_list backward(AutogradContext* context, variable_list grads);
};
struct GatherSequenceFunction : Function<GatherSequenceFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const Call& call);
  static variable_list backward(AutogradContext* context, variable_list grads);
};
struct ReduceScatterSequenceFunction : Function<ReduceScatterSequenceFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const Call& call);
  static variable_list backward(AutogradContext* context, variable_list grads);
};

// True if x came straight out of mp_copy: its gradient is reduced already.
bool is_copy_over(const at::Tensor& x, const Group& group, ReduceOp op) {
  const auto* node = dynamic_cast<const torch::autograd::CppNode<CopyFunction>*>(x.grad_fn().get());
  if (node == nullptr) return false;
  const auto call =
      c10::static_intrusive_pointer_cast<CallHolder>(node->ctx_.saved_data.at("call").toCapsule());
  return call->group == group && call->op == op;
}

at::Tensor CopyFunction::forward(AutogradContext* context, const at::Tensor& x, const Call& call) {
  save(context, call);
  return x.view_as(x);
}

variable_list CopyFunction::backward(AutogradContext* context, variable_list grads) {
  return {ReduceFunction::apply(grads[0], saved(context)), at::Tensor()};
}

at::Tensor ReduceFunction::forward(AutogradContext* context, const at::Tensor& x,
                                   const Call& call) {
  save(context, call);
  return reduced(x, call->group, call->op);
}

variable_list ReduceFunction::backward(AutogradContext* context, variable_list grads) {
  const Call call = saved(context);
  // Without a graph the gradient is passed on as it is: a view of it could end as the .grad of two
  // tensors that share memory.
  const at::Tensor grad =
      at::GradMode::is_enabled() ? CopyFunction::apply(grads[0], make_call(call->group)) : grads[0];
  if (call->op == ReduceOp::kSum) return {grad, at::Tensor()};
  return {grad / static_cast<double>(call->group.size()), at::Tensor()};
}

at::Tensor ScatterFunction::forward(AutogradContext* context, const at::Tensor& x,
                                    const Call& call) {
  save(context, call);
  return own_piece(x, call->dim, call->sizes, call->group.rank());
}

variable_list ScatterFunction::backward(AutogradContext* context, variable_list grads) {
  return {GatherFunction::apply(grads[0], saved(context)), at::Tensor()};
}

at::Tensor GatherFunction::forward(AutogradContext* context, const at::Tensor& x,
                                   const Call& call) {
  save(context, call);
  return call->group.all_gather(x.detach(), call->dim, call->sizes);
}

variable_list GatherFunction::backward(AutogradContext* context, variable_list grads) {
  return {ScatterFunction::apply(grads[0], saved(context)), at::Tensor()};
}

at::Tensor GatherSequenceFunction::forward(AutogradContext* context, const at::Tensor& x,
                                           const Call& call) {
  save(context, call);
  return call->group.all_gather(x.detach(), call->dim, call->sizes);
}

variable_list GatherSequenceFunction::backward(AutogradContext* context, variable_list grads) {
  return {ReduceScatterSequenceFunction::apply(grads[0], saved(context)), at::Tensor()};
}

at::Tensor ReduceScatterSequenceFunction::forward(AutogradContext* context, const at::Tensor& x,
                                                  const Call& call) {
  save(context, call);
  return call->group.reduce_scatter(x.detach(), call->dim, call->sizes);
}

variable_list ReduceScatterSequenceFunction::backward(AutogradContext* context,
                                                      variable_list grads) {
  return {GatherSequenceFunction::apply(grads[0], saved(context)), at::Tensor()};
}

// The lengths that a cut of x along dim uses: those given, or balanced ones.
std::vector<int64_t> cut_sizes(const at::Tensor& x, int64_t dim, const Group& group,
                               const std::vector<int64_t>& sizes, const char* where) {
  if (sizes.empty()) return balanced_sizes(x.size(dim), group);
  bool fits = static_cast<int64_t>(sizes.size()) == group.size();
  int64_t sum = 0;
  for (const int64_t size : sizes) {
    fits = fits && size >= 0 && !__builtin_add_overflow(sum, size, &sum);
  }
  core::check<core::ShapeError>(fits && sum == x.size(dim), where, ": sizes ",
                                core::list_text(sizes), ", expected ", group.size(),
                                " lengths, one per rank, that sum to ", x.size(dim));
  return sizes;
}

// Sizes that the caller left out are the same question on every rank, so all ranks ask it.
std::vector<int64_t> exchanged_sizes(const at::Tensor& x, int64_t dim, const Group& group,
                                     const std::vector<int64_t>& sizes) {
  if (!sizes.empty()) return sizes;
  at::Tensor own = at::empty({1}, at::kLong);
  own.fill_(x.size(dim));
  const at::Tensor all =
      group.all_gather(own, 0, std::vector<int64_t>(static_cast<size_t>(group.size()), 1));
  return {all.data_ptr<int64_t>(), all.data_ptr<int64_t>() + all.numel()};
}

}  // namespace

at::Tensor mp_copy(const at::Tensor& x, const Group& group, ReduceOp op) {
  core::check<core::ConfigError>(op == ReduceOp::kSum || op == ReduceOp::kAverage,
                                 "ops.mp_copy: a gradient is summed or averaged; use one of these");
  if (group.size() == 1 || is_copy_over(x, group, op)) return x;
  return CopyFunction::apply(x, make_call(group, 0, {}, op));
}

at::Tensor mp_reduce(const at::Tensor& x, const Group& group, ReduceOp op) {
  const bool has_gradient = op == ReduceOp::kSum || op == ReduceOp::kAverage;
  core::check<core::ConfigError>(has_gradient || !(x.requires_grad() && at::GradMode::is_enabled()),
                                 "ops.mp_reduce: min, max and product have no gradient over ranks; "
                                 "detach the input or use sum");
  if (group.size() == 1) return x;
  return ReduceFunction::apply(x, make_call(group, 0, {}, op));
}

at::Tensor mp_scatter(const at::Tensor& x, int64_t dim, const Group& group,
                      const std::vector<int64_t>& sizes) {
  const int64_t d = wrap_dim(x, dim, "ops.mp_scatter");
  std::vector<int64_t> lengths = cut_sizes(x, d, group, sizes, "ops.mp_scatter");
  if (group.size() == 1) return x;
  return ScatterFunction::apply(x, make_call(group, d, std::move(lengths)));
}

at::Tensor mp_gather(const at::Tensor& x, int64_t dim, const Group& group,
                     const std::vector<int64_t>& sizes) {
  const int64_t d = wrap_dim(x, dim, "ops.mp_gather");
  if (group.size() == 1) return x;
  return GatherFunction::apply(x, make_call(group, d, exchanged_sizes(x, d, group, sizes)));
}

at::Tensor gather_sequence(const at::Tensor& x, int64_t dim, const Group& group,
                           const std::vector<int64_t>& sizes) {
  const int64_t d = wrap_dim(x, dim, "ops.gather_sequence");
  if (group.size() == 1) return x;
  return GatherSequenceFunction::apply(x, make_call(group, d, exchanged_sizes(x, d, group, sizes)));
}

at::Tensor reduce_scatter_sequence(const at::Tensor& x, int64_t dim, const Group& group,
                                   const std::vector<int64_t>& sizes) {
  const int64_t d = wrap_dim(x, dim, "ops.reduce_scatter_sequence");
  std::vector<int64_t> lengths = cut_sizes(x, d, group, sizes, "ops.reduce_scatter_sequence");
  if (group.size() == 1) return x;
  return ReduceScatterSequenceFunction::apply(x, make_call(group, d, std::move(lengths)));
}

}  // namespace weft::ops
