#include "weft/nn/linear/fused_linear.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "weft/nn/linear/dense_linear.h"
#include "weft/nn/linear/linear_parts.h"
#include "weft/ops/collectives.h"

namespace weft::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct ReducedCall : torch::CustomClassHolder {
  ReducedCall(dist::Group g, RowCounts r) : group(std::move(g)), rows(std::move(r)) {}
  // All rows of a gradient.
  at::Tensor all_rows(const at::Tensor& gradient) const {
    return rows.empty() ? gradient : group.all_gather(gradient, 0, rows);
  }

  dist::Group group;
  RowCounts rows;
};
using ReducedCallPtr = c10::intrusive_ptr<ReducedCall>;

at::Tensor as_rows(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

// What goes to all ranks, and what is summed over them, by operations that record themselves.
at::Tensor copied_rows(const at::Tensor& x, const dist::Group& group, const RowCounts& rows) {
  return rows.empty() ? ops::mp_copy(x, group) : ops::gather_sequence(x, 0, group, rows);
}

at::Tensor summed_rows(const at::Tensor& x, const dist::Group& group, const RowCounts& rows) {
  return rows.empty() ? ops::mp_reduce(x, group) : ops::reduce_scatter_sequence(x, 0, group, rows);
}

// The linear as one of plain parameters; null if it is anything else.
const DenseLinearImpl* plain_dense(const LinearLike& linear) {
  const auto* dense = dynamic_cast<const DenseLinearImpl*>(&linear);
  return dense != nullptr && !dense->sums_shared_rows() ? dense : nullptr;
}

// Which parameters a pass has: weights, then the biases of the linears that have one.
struct SharedCall : torch::CustomClassHolder {
  SharedCall(dist::Group g, std::vector<bool> b, RowCounts r)
      : group(std::move(g)), has_bias(std::move(b)), rows(std::move(r)) {}
  // All rows of x.
  at::Tensor all_rows(const at::Tensor& x) const {
    return rows.empty() ? x : group.all_gather(x.detach(), 0, rows);
  }
  // The sum over the ranks of a gradient of all rows, where x has it.
  at::Tensor sum(at::Tensor gradient) const {
    if (!rows.empty()) return group.reduce_scatter(gradient, 0, rows);
    group.all_reduce(gradient);
    return gradient;
  }

  dist::Group group;
  std::vector<bool> has_bias;
  RowCounts rows;
};

// y_i = x w_i^T + b_i.
struct SharedInputFunction : torch::autograd::Function<SharedInputFunction> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x,
                               at::TensorList parameters,
                               const c10::intrusive_ptr<SharedCall>& call) {
    const size_t count = call->has_bias.size();
    variable_list outputs, saved = {x};
    size_t next_bias = count;
    const at::Tensor all = call->all_rows(x);
    for (size_t i = 0; i < count; ++i) {
      const at::Tensor bias = call->has_bias[i] ? parameters[next_bias++] : at::Tensor();
      outputs.push_back(at::linear(all, parameters[i], bias));
      saved.push_back(parameters[i]);
    }
    context->save_for_backward(saved);
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    return outputs;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto call =
        c10::static_intrusive_pointer_cast<SharedCall>(context->saved_data["call"].toCapsule());
    const variable_list saved = context->get_saved_variables();
    if (at::GradMode::is_enabled()) {
      return recorded_backward(*call, saved, grads, context->needs_input_grad(0));
    }
    at::Tensor x_SD, d_x;
    variable_list d_weights, d_biases;
    for (size_t i = 0; i < grads.size(); ++i) {
      if (context->needs_input_grad(i + 1) && !x_SD.defined()) {
        x_SD = as_rows(call->all_rows(saved[0]));
      }
      const at::Tensor g = as_rows(grads[i]);
      if (context->needs_input_grad(0)) add_product(g, saved[i + 1], d_x);
      d_weights.push_back(context->needs_input_grad(i + 1) ? at::mm(g.t(), x_SD) : at::Tensor());
      if (call->has_bias[i]) d_biases.push_back(g.sum(0));
    }
    if (d_x.defined()) d_x = call->sum(d_x).view(saved[0].sizes());
    variable_list result = {d_x};
    result.insert(result.end(), d_weights.begin(), d_weights.end());
    result.insert(result.end(), d_biases.begin(), d_biases.end());
    result.emplace_back();
    return result;
  }

 private:
  // The same of operations that record themselves, for a gradient of the gradient.
  static variable_list recorded_backward(const SharedCall& call, const variable_list& saved,
                                         const variable_list& grads, bool needs_input) {
    const at::Tensor all_SD = as_rows(copied_rows(saved[0], call.group, call.rows));
    at::Tensor d_all;
    variable_list d_weights, d_biases;
    for (size_t i = 0; i < grads.size(); ++i) {
      const at::Tensor g = as_rows(grads[i]);
      if (needs_input) {
        const at::Tensor product = at::mm(g, saved[i + 1]);
        d_all = d_all.defined() ? d_all + product : product;
      }
      d_weights.push_back(at::mm(g.t(), all_SD));
      if (call.has_bias[i]) d_biases.push_back(g.sum(0));
    }
    if (needs_input) d_all = summed_rows(d_all, call.group, call.rows).view(saved[0].sizes());
    variable_list result = {d_all};
    result.insert(result.end(), d_weights.begin(), d_weights.end());
    result.insert(result.end(), d_biases.begin(), d_biases.end());
    result.emplace_back();
    return result;
  }

  static void add_product(const at::Tensor& a, const at::Tensor& b, at::Tensor& sum) {
    if (sum.defined()) {
      sum.addmm_(a, b);
    } else {
      sum = at::mm(a, b);
    }
  }
};

// y = sum over ranks of x w^T.
struct ReducedFunction : torch::autograd::Function<ReducedFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const ReducedCallPtr& call) {
    context->save_for_backward({x, weight});
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    at::Tensor y = at::linear(x, weight);
    if (!call->rows.empty()) return call->group.reduce_scatter(y, 0, call->rows);
    call->group.all_reduce(y);
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    const variable_list saved = context->get_saved_variables();
    const auto call =
        c10::static_intrusive_pointer_cast<ReducedCall>(context->saved_data["call"].toCapsule());
    const bool is_recorded = at::GradMode::is_enabled();
    const at::Tensor g = as_rows(is_recorded ? copied_rows(grads[0], call->group, call->rows)
                                             : call->all_rows(grads[0]));
    at::Tensor d_x, d_weight;
    if (context->needs_input_grad(0)) d_x = at::mm(g, saved[1]).view(saved[0].sizes());
    if (context->needs_input_grad(1)) d_weight = at::mm(g.t(), as_rows(saved[0]));
    return {d_x, d_weight, at::Tensor()};
  }
};

}  // namespace

std::vector<at::Tensor> linears_of_shared(const std::vector<std::shared_ptr<LinearLike>>& linears,
                                          const at::Tensor& x, const dist::Group& group,
                                          const RowCounts& rows) {
  std::vector<at::Tensor> parameters, biases;
  std::vector<bool> has_bias;
  for (const auto& linear : linears) {
    const DenseLinearImpl* dense = plain_dense(*linear);
    if (dense == nullptr || !at::GradMode::is_enabled()) break;
    check_input(x, dense->in_features(), "nn.DenseLinear");
    parameters.push_back(dense->weight);
    has_bias.push_back(dense->has_bias());
    if (dense->has_bias()) biases.push_back(dense->bias);
  }
  if (parameters.size() == linears.size()) {
    parameters.insert(parameters.end(), biases.begin(), biases.end());
    return SharedInputFunction::apply(x, at::TensorList(parameters),
                                      c10::make_intrusive<SharedCall>(group, has_bias, rows));
  }
  const at::Tensor shared = copied_rows(x, group, rows);
  std::vector<at::Tensor> outputs;
  for (const auto& linear : linears) outputs.push_back(linear->forward(shared));
  return outputs;
}

at::Tensor reduced_linear(LinearLike& linear, const at::Tensor& x, const dist::Group& group,
                          const RowCounts& rows) {
  const DenseLinearImpl* dense = plain_dense(linear);
  if (dense == nullptr || dense->has_bias()) {
    return summed_rows(linear.forward(x), group, rows);
  }
  check_input(x, dense->in_features(), "nn.DenseLinear");
  return ReducedFunction::apply(x, dense->weight, c10::make_intrusive<ReducedCall>(group, rows));
}

}  // namespace weft::nn
