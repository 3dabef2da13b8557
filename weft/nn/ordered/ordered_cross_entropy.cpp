#include "weft/nn/ordered/ordered_cross_entropy.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "weft/core/error.h"
#include "weft/nn/layers/element_kernel.h"

namespace weft::nn::ordered {
namespace {

using core::check;
using core::ShapeError;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kIgnored = -100;

struct LossCall : torch::CustomClassHolder {
  LossCall(shard::Range v, dist::Group g, std::shared_ptr<dist::OrderedSum> s)
      : vocab(v), group(std::move(g)), sum(std::move(s)) {}
  shard::Range vocab;
  dist::Group group;
  std::shared_ptr<dist::OrderedSum> sum;
};

// Rows of logits, read by several threads, a row by one.
class Rows {
 public:
  Rows(const at::Tensor& logits_Tv, const shard::Range& vocab)
      : kernel_(*element_kernel(logits_Tv)),
        data_(logits_Tv.const_data_ptr<float>()),
        count_(logits_Tv.size(0)),
        size_(logits_Tv.size(1)),
        vocab_(vocab) {}

  const kernels::ElementKernel& kernel() const { return kernel_; }
  int64_t size() const { return size_; }
  const float* at(int64_t row) const { return data_ + row * size_; }
  // This rank's column of a token; -1: others have it.
  int64_t column(int64_t token) const {
    return token >= vocab_.start && token < vocab_.end() ? token - vocab_.start : -1;
  }
  template <class Use>
  void for_each(Use&& use) const {
    at::parallel_for(0, count_, 8, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) use(row);
    });
  }

 private:
  const kernels::ElementKernel& kernel_;
  const float* data_;
  int64_t count_;
  int64_t size_;
  shard::Range vocab_;
};

at::Tensor largest_of_rows(const Rows& rows, int64_t tokens, const dist::Group& group) {
  at::Tensor max_T = at::empty({tokens}, at::kFloat);
  auto* max = max_T.mutable_data_ptr<float>();
  rows.for_each([&](int64_t row) {
    max[row] = rows.kernel().row_max({rows.at(row), rows.size(), 0});
  });
  group.all_reduce(max_T, dist::ReduceOp::kMax);
  return max_T;
}

// ln of the sum of exponentials of each row less its largest number.
at::Tensor log_sums(const Rows& rows, const at::Tensor& max_T, dist::OrderedSum& sum) {
  const int64_t T = max_T.size(0);
  const shard::SumPlan& plan = sum.plan();
  const auto* max = max_T.const_data_ptr<float>();
  at::Tensor pieces = at::empty({std::ssize(plan.pieces), T}, at::kFloat);
  auto* of = pieces.mutable_data_ptr<float>();
  rows.for_each([&](int64_t row) {
    for (size_t i = 0; i < plan.pieces.size(); ++i) {
      const shard::Range& piece = plan.pieces[i];
      of[static_cast<int64_t>(i) * T + row] =
          rows.kernel().row_exp_sum({rows.at(row) + piece.start, piece.length, max[row]});
    }
    for (const shard::SumStep& step : plan.steps) of[step.to * T + row] += of[step.from * T + row];
  });
  float* room = sum.room(T);
  for (const int64_t node : plan.nodes) room = std::copy_n(of + node * T, T, room);
  const float* whole = sum.sum(T);
  at::Tensor logs_T = at::empty({T}, at::kFloat);
  auto* logs = logs_T.mutable_data_ptr<float>();
  for (int64_t row = 0; row < T; ++row) logs[row] = std::log(whole[row]);
  return logs_T;
}

// Each target's logit less the largest, on all ranks: one has it, the others' zeros add nothing.
at::Tensor logits_of_targets(const Rows& rows, const at::Tensor& targets_T, const at::Tensor& max_T,
                             const dist::Group& group) {
  at::Tensor own_T = at::zeros({max_T.size(0)}, at::kFloat);
  const auto* target = targets_T.const_data_ptr<int64_t>();
  for (int64_t row = 0; row < max_T.size(0); ++row) {
    const int64_t column = rows.column(target[row]);
    if (column < 0) continue;
    own_T.mutable_data_ptr<float>()[row] =
        rows.at(row)[column] - max_T.const_data_ptr<float>()[row];
  }
  group.all_reduce(own_T);
  return own_T;
}

struct LossFunction : torch::autograd::Function<LossFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& logits_BTv,
                            const at::Tensor& targets_BT,
                            const c10::intrusive_ptr<LossCall>& call) {
    const at::Tensor logits_Tv = logits_BTv.flatten(0, 1), targets_T = targets_BT.flatten();
    const Rows rows(logits_Tv, call->vocab);
    const at::Tensor max_T = largest_of_rows(rows, logits_Tv.size(0), call->group);
    const at::Tensor log_T = log_sums(rows, max_T, *call->sum);
    const at::Tensor own_T = logits_of_targets(rows, targets_T, max_T, call->group);
    context->save_for_backward({logits_BTv, targets_T, max_T, log_T});
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    at::Tensor losses_B = at::zeros({targets_BT.size(0)}, at::kDouble);
    const auto* target = targets_T.const_data_ptr<int64_t>();
    for (int64_t row = 0; row < logits_Tv.size(0); ++row) {
      if (target[row] == kIgnored) continue;
      losses_B.mutable_data_ptr<double>()[row / targets_BT.size(1)] +=
          log_T.const_data_ptr<float>()[row] - own_T.const_data_ptr<float>()[row];
    }
    return losses_B;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    check<core::ConfigError>(!at::GradMode::is_enabled(),
                             "nn.ordered: a gradient of the gradient is not defined; call backward "
                             "without create_graph");
    const auto call =
        c10::static_intrusive_pointer_cast<LossCall>(context->saved_data["call"].toCapsule());
    const variable_list saved = context->get_saved_variables();
    const at::Tensor factors_B = grads[0].to(at::kFloat).contiguous();
    const auto* factors = factors_B.const_data_ptr<float>();
    const int64_t tokens = saved[0].size(1);
    at::Tensor d_BTv = saved[0].detach();
    const Rows rows(d_BTv.flatten(0, 1), call->vocab);
    const auto* target = saved[1].const_data_ptr<int64_t>();
    const auto* max = saved[2].const_data_ptr<float>();
    const auto* log = saved[3].const_data_ptr<float>();
    auto* to = d_BTv.mutable_data_ptr<float>();
    rows.for_each([&](int64_t row) {
      float* out = to + row * rows.size();
      const float factor = factors[row / tokens];
      if (target[row] == kIgnored) {
        std::fill_n(out, rows.size(), 0.F);
        return;
      }
      const int64_t column = rows.column(target[row]);
      const float wanted = column < 0 ? 0.F : std::exp(out[column] - max[row] - log[row]) - 1;
      rows.kernel().row_softmax({out, rows.size(), max[row]}, log[row], factor, 0, out);
      if (column >= 0) out[column] = wanted * factor;
    });
    return {d_BTv, at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor cross_entropy_sum(const at::Tensor& logits_BTv, const at::Tensor& targets_BT,
                             const shard::Range& vocab, int64_t vocab_size,
                             const dist::Group& group,
                             const std::shared_ptr<dist::OrderedSum>& sum) {
  check<ShapeError>(logits_BTv.is_cpu() && logits_BTv.scalar_type() == at::kFloat &&
                        logits_BTv.dim() == 3 && logits_BTv.size(2) == vocab.length &&
                        targets_BT.scalar_type() == at::kLong &&
                        targets_BT.sizes() == logits_BTv.sizes().slice(0, 2),
                    "nn.ordered: logits ", core::list_text(logits_BTv.sizes()), " for targets ",
                    core::list_text(targets_BT.sizes()), ", expected float32 [B, T, ", vocab.length,
                    "] and int64 [B, T]");
  const at::Tensor targets = targets_BT.contiguous();
  const auto* target = targets.const_data_ptr<int64_t>();
  for (int64_t i = 0; i < targets.numel(); ++i) {
    check<ShapeError>(target[i] == kIgnored || (target[i] >= 0 && target[i] < vocab_size),
                      "nn.ordered: target ", target[i], ", expected 0 to ", vocab_size - 1, " or ",
                      kIgnored);
  }
  return LossFunction::apply(logits_BTv.contiguous(), targets,
                             c10::make_intrusive<LossCall>(vocab, group, sum));
}

}  // namespace weft::nn::ordered
