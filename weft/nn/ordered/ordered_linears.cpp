#include "weft/nn/ordered/ordered_linears.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <utility>

#include "weft/core/error.h"
#include "weft/nn/ordered/ordered_product.h"

namespace weft::nn::ordered {
namespace {

using core::check;
using core::ShapeError;
using torch::autograd::AutogradContext;
using torch::autograd::Function;
using torch::autograd::variable_list;

at::Tensor as_rows(const at::Tensor& x) {
  return x.detach().reshape({-1, x.size(-1)}).contiguous();
}

at::Tensor rows_like(const at::Tensor& x, int64_t features) {
  auto sizes = x.sizes().vec();
  sizes.back() = features;
  return at::empty(sizes, at::kFloat);
}

// A parameter may be given its memory by the first operation that uses it (train's sharded units):
// there has to be one before its pointer is taken.
at::Tensor announced(const at::Tensor& parameter) { return parameter.detach().contiguous(); }

// w's gradient: g^T x, token by token, and sequences by their order.
at::Tensor weight_gradient(const at::Tensor& g_Tn, const at::Tensor& x_TD,
                           const shard::SumPlan& order) {
  at::Tensor d_w = at::empty({g_Tn.size(1), x_TD.size(1)}, at::kFloat);
  multiply(gradient_product(g_Tn, x_TD, order), order, d_w.mutable_data_ptr<float>());
  return d_w;
}

// The sum of rows, one after another, and of sequences by their order.
at::Tensor column_sums(const at::Tensor& g_Tn, const shard::SumPlan& order) {
  const int64_t n = g_Tn.size(1), sequences = std::ssize(order.pieces);
  const int64_t rows = rows_of_each(g_Tn.size(0), order);
  at::Tensor sums = at::zeros({sequences, n}, at::kFloat);
  const float* row = g_Tn.const_data_ptr<float>();
  for (int64_t sequence = 0; sequence < sequences; ++sequence) {
    auto* to = sums.mutable_data_ptr<float>() + sequence * n;
    for (int64_t t = 0; t < rows; ++t, row += n) {
      for (int64_t i = 0; i < n; ++i) to[i] += row[i];
    }
  }
  return summed_parts(sums, order);
}

// Some rows of a product.
Product rows_of(const Product& product, int64_t first, int64_t count) {
  Product part = product;
  part.rows = count;
  for (auto& piece : part.pieces) {
    for (Stretch& stretch : piece) stretch.a.data += first * stretch.a.row;
  }
  return part;
}

// Products of this rank's pieces, summed over the ranks: [rows, columns]. Some rows at a time, so
// that what the ranks exchange takes little memory.
at::Tensor summed(const Product& product, dist::OrderedSum& sum) {
  at::Tensor y = at::empty({product.rows, product.columns}, at::kFloat);
  auto* to = y.mutable_data_ptr<float>();
  if (sum.is_alone()) {
    multiply(product, sum.plan(), to);
    return y;
  }
  const int64_t at_once = shard::rows_exchanged_at_once(product.columns);
  for (int64_t first = 0; first < product.rows; first += at_once) {
    const int64_t rows = std::min(at_once, product.rows - first), count = rows * product.columns;
    multiply(rows_of(product, first, rows), sum.plan(), sum.room(count));
    std::copy_n(sum.sum(count), count, to + first * product.columns);
  }
  return y;
}

void check_float(const at::Tensor& x, const char* what) {
  check<ShapeError>(x.is_cpu() && x.scalar_type() == at::kFloat, "nn.ordered: ", what, " ",
                    c10::toString(x.scalar_type()), ", expected Float on the CPU");
}

void check_no_graph() {
  check<core::ConfigError>(!at::GradMode::is_enabled(),
                           "nn.ordered: a gradient of the gradient is not defined; call backward "
                           "without create_graph");
}

// What a pass's backward needs of the forward call: none is an IValue, so they travel in holders.
struct InputCall : torch::CustomClassHolder {
  InputCall(std::shared_ptr<const InputSum> i, SequenceOrder o, std::shared_ptr<HeldGradient> h)
      : input(std::move(i)), order(std::move(o)), held(std::move(h)) {}
  std::shared_ptr<const InputSum> input;
  SequenceOrder order;
  std::shared_ptr<HeldGradient> held;
};
struct SumCall : torch::CustomClassHolder {
  SumCall(std::shared_ptr<dist::OrderedSum> s, SequenceOrder o)
      : sum(std::move(s)), order(std::move(o)) {}
  std::shared_ptr<dist::OrderedSum> sum;
  SequenceOrder order;
};

template <class Call>
c10::intrusive_ptr<Call> call_of(AutogradContext* context) {
  return c10::static_intrusive_pointer_cast<Call>(context->saved_data["call"].toCapsule());
}

struct LinearsFunction : Function<LinearsFunction> {
  static variable_list forward(AutogradContext* context, const at::Tensor& x,
                               at::TensorList weights, const c10::intrusive_ptr<InputCall>& call) {
    const at::Tensor x_TD = as_rows(x);
    variable_list outputs, saved = {x};
    for (const at::Tensor& weight : weights) {
      const at::Tensor own = announced(weight);
      at::Tensor y = rows_like(x, own.size(0));
      multiply({x_TD.size(0), own.size(0), {{{plain(x_TD), turned(own), own.size(1)}}}},
               y.mutable_data_ptr<float>());
      outputs.push_back(y);
      saved.push_back(weight);
    }
    context->save_for_backward(saved);
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    return outputs;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    check_no_graph();
    const variable_list saved = context->get_saved_variables();
    const auto call = call_of<InputCall>(context);
    const at::Tensor x_TD = as_rows(saved[0]);
    variable_list d_weights, rows, weights;
    for (size_t i = 0; i < grads.size(); ++i) {
      weights.push_back(announced(saved[i + 1]));
      rows.push_back(grads[i].defined() ? as_rows(grads[i])
                                        : at::zeros({x_TD.size(0), weights[i].size(0)}));
      const bool is_made = context->needs_input_grad(i + 1) && call->held == nullptr;
      d_weights.push_back(is_made ? weight_gradient(rows[i], x_TD, *call->order) : at::Tensor());
    }
    if (call->held != nullptr) *call->held = {rows[0], x_TD};
    at::Tensor d_x;
    if (context->needs_input_grad(0)) {
      d_x = input_gradient(rows, weights, *call->input).view(saved[0].sizes());
    }
    variable_list result = {d_x};
    result.insert(result.end(), d_weights.begin(), d_weights.end());
    result.emplace_back();
    return result;
  }

 private:
  // The sum over all linears and ranks of g w.
  static at::Tensor input_gradient(const variable_list& rows, const variable_list& weights,
                                   const InputSum& input) {
    Product product{rows[0].size(0), weights[0].size(1), {}};
    for (const auto& piece : input.pieces) {
      auto& stretches = product.pieces.emplace_back();
      for (const LinearRows& part : piece) {
        Strided g = plain(rows[part.linear]), w = plain(weights[part.linear]);
        g.data += part.rows.start;
        w.data += part.rows.start * w.row;
        stretches.push_back({g, w, part.rows.length});
      }
    }
    return summed(product, *input.sum);
  }
};

struct ReducedFunction : Function<ReducedFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& weight,
                            const c10::intrusive_ptr<SumCall>& call) {
    context->save_for_backward({x, weight});
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    const at::Tensor x_Tn = as_rows(x), own = announced(weight);
    Product product{x_Tn.size(0), own.size(0), {}};
    for (const shard::Range& piece : call->sum->plan().pieces) {
      Strided a = plain(x_Tn), b = turned(own);
      a.data += piece.start;
      b.data += piece.start;
      product.pieces.push_back({{a, b, piece.length}});
    }
    auto sizes = x.sizes().vec();
    sizes.back() = own.size(0);
    return summed(product, *call->sum).view(sizes);
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    check_no_graph();
    const variable_list saved = context->get_saved_variables();
    const auto call = call_of<SumCall>(context);
    const at::Tensor g_TD = as_rows(grads[0]);
    at::Tensor d_x, d_weight;
    if (context->needs_input_grad(0)) {
      const at::Tensor own = announced(saved[1]);
      d_x = at::empty(saved[0].sizes(), at::kFloat);
      multiply({g_TD.size(0), own.size(1), {{{plain(g_TD), plain(own), own.size(0)}}}},
               d_x.mutable_data_ptr<float>());
    }
    if (context->needs_input_grad(1)) {
      d_weight = weight_gradient(g_TD, as_rows(saved[0]), *call->order);
    }
    return {d_x, d_weight, at::Tensor()};
  }
};

struct OrderCall : torch::CustomClassHolder {
  explicit OrderCall(SequenceOrder o) : order(std::move(o)) {}
  SequenceOrder order;
};

struct BiasFunction : Function<BiasFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& y, const at::Tensor& bias,
                            const c10::intrusive_ptr<OrderCall>& call) {
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    return y + bias;
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    const auto call = call_of<OrderCall>(context);
    return {grads[0], column_sums(as_rows(grads[0]), *call->order), at::Tensor()};
  }
};

}  // namespace

std::vector<at::Tensor> linears(const at::Tensor& x, const std::vector<at::Tensor>& weights,
                                const std::vector<at::Tensor>& biases,
                                const std::shared_ptr<const InputSum>& input,
                                const SequenceOrder& order,
                                const std::shared_ptr<HeldGradient>& held) {
  check_float(x, "input");
  rows_of_each(x.numel() / x.size(-1), *order);
  for (const at::Tensor& weight : weights) {
    check_float(weight, "weight");
    check<ShapeError>(weight.dim() == 2 && x.dim() >= 1 && weight.size(1) == x.size(-1),
                      "nn.ordered: input ", core::list_text(x.sizes()), " for a weight ",
                      core::list_text(weight.sizes()), ", expected as many features");
  }
  check<ShapeError>(held == nullptr || weights.size() == 1, "nn.ordered: ", weights.size(),
                    " weights whose gradient is held, expected one");
  std::vector<at::Tensor> outputs = LinearsFunction::apply(
      x, at::TensorList(weights), c10::make_intrusive<InputCall>(input, order, held));
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (biases[i].defined()) outputs[i] = with_bias(outputs[i], biases[i], order);
  }
  return outputs;
}

at::Tensor reduced(const at::Tensor& x, const at::Tensor& weight,
                   const std::shared_ptr<dist::OrderedSum>& sum, const SequenceOrder& order) {
  check_float(x, "input");
  rows_of_each(x.numel() / x.size(-1), *order);
  check_float(weight, "weight");
  int64_t features = 0;
  for (const shard::Range& piece : sum->plan().pieces) features += piece.length;
  check<ShapeError>(weight.dim() == 2 && x.dim() >= 1 && x.size(-1) == weight.size(1) &&
                        features == weight.size(1),
                    "nn.ordered: input ", core::list_text(x.sizes()), " for a weight ",
                    core::list_text(weight.sizes()), " and pieces of ", features,
                    " features, expected as many");
  return ReducedFunction::apply(x, weight, c10::make_intrusive<SumCall>(sum, order));
}

at::Tensor with_bias(const at::Tensor& y, const at::Tensor& bias, const SequenceOrder& order) {
  return BiasFunction::apply(y, bias, c10::make_intrusive<OrderCall>(order));
}

}  // namespace weft::nn::ordered
