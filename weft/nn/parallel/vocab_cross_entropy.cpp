#include "weft/nn/parallel/vocab_cross_entropy.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <cstring>
#include <utility>

#include "weft/core/error.h"
#include "weft/nn/layers/element_kernel.h"

namespace weft::nn {
namespace {

using core::check;
using core::ConfigError;
using core::ShapeError;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr const char* kCrossEntropy = "nn.vocab_parallel_cross_entropy";

struct Call : torch::CustomClassHolder {
  Call(shard::Range v, int64_t size, dist::Group g, const CrossEntropyOptions& o)
      : vocab(v), vocab_size(size), group(std::move(g)), options(o) {}
  shard::Range vocab;
  int64_t vocab_size;
  dist::Group group;
  CrossEntropyOptions options;
  /// The logits hold the gradient by now.
  bool is_spent = false;
};

at::ScalarType arithmetic_type(const at::Tensor& logits) {
  return logits.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

// This rank's column of each target, and whether it holds it.
struct LocalTargets {
  LocalTargets(const at::Tensor& targets, const shard::Range& vocab)
      : is_mine((targets >= vocab.start).logical_and(targets < vocab.end())),
        column((targets - vocab.start).clamp(0, vocab.length - 1)) {}
  at::Tensor is_mine;
  at::Tensor column;
};

// Rows of contiguous logits for the kernels.
class LogitsRows {
 public:
  explicit LogitsRows(const at::Tensor& logits_Nv)
      : kernel_(*element_kernel(logits_Nv)),
        data_(static_cast<const char*>(logits_Nv.const_data_ptr())),
        rows_(logits_Nv.size(0)),
        size_(logits_Nv.size(1)),
        element_bytes_(static_cast<int64_t>(logits_Nv.element_size())) {}

  const kernels::ElementKernel& kernel() const { return kernel_; }
  int64_t element_bytes() const { return element_bytes_; }
  int64_t row_bytes() const { return size_ * element_bytes_; }
  const void* at(int64_t row, int64_t column) const {
    return data_ + row * row_bytes() + column * element_bytes_;
  }

  template <class Use>
  void for_each(Use&& use) const {
    at::parallel_for(0, rows_, 8, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        use(row, kernels::LogitsRow{at(row, 0), size_, 0});
      }
    });
  }

 private:
  const kernels::ElementKernel& kernel_;
  const char* data_;
  int64_t rows_;
  int64_t size_;
  int64_t element_bytes_;
};

// Loss per token of the rows of logits_Nv, and the two parts of the logarithm of its sum of
// exponentials. Added up, they would lose what large logits differ by.
struct Losses {
  at::Tensor loss_N;
  at::Tensor max_N;
  at::Tensor log_sum_N;
};

Losses losses_of(const at::Tensor& logits_Nv, const at::Tensor& targets_N, const Call& call) {
  at::Tensor x_Nv = logits_Nv.to(arithmetic_type(logits_Nv));
  at::Tensor max_N = x_Nv.amax(-1);
  call.group.all_reduce(max_N, dist::ReduceOp::kMax);
  x_Nv = x_Nv - max_N.unsqueeze(-1);
  const LocalTargets local(targets_N, call.vocab);
  const double smoothing = call.options.label_smoothing;
  // What only sums over ranks goes in one all-reduce.
  std::vector<at::Tensor> sums = {x_Nv.gather(-1, local.column.unsqueeze(-1))
                                      .squeeze(-1)
                                      .masked_fill(local.is_mine.logical_not(), 0)};
  if (smoothing != 0) sums.push_back(x_Nv.sum(-1));
  sums.push_back(x_Nv.exp_().sum(-1));
  at::Tensor packed = at::stack(sums);
  call.group.all_reduce(packed);
  const at::Tensor log_sum_N = packed[-1].log();
  at::Tensor loss_N = log_sum_N - packed[0];
  if (smoothing != 0) {
    const at::Tensor even_N = log_sum_N - packed[1] / static_cast<double>(call.vocab_size);
    loss_N = loss_N * (1 - smoothing) + even_N * smoothing;
  }
  if (call.options.z_loss != 0) {
    loss_N = loss_N + (log_sum_N + max_N).square() * call.options.z_loss;
  }
  return {loss_N.masked_fill(targets_N == call.options.ignore_index, 0), max_N, log_sum_N};
}

// losses_of in two passes over the logits that write none; without smoothing.
Losses fused_losses(const at::Tensor& logits_Nv, const at::Tensor& targets_N, const Call& call) {
  const LogitsRows rows(logits_Nv);
  at::Tensor max_N = at::empty({logits_Nv.size(0)}, at::kFloat);
  auto* max = max_N.mutable_data_ptr<float>();
  rows.for_each(
      [&](int64_t row, const kernels::LogitsRow& x) { max[row] = rows.kernel().row_max(x); });
  call.group.all_reduce(max_N, dist::ReduceOp::kMax);
  const LocalTargets local(targets_N, call.vocab);
  at::Tensor packed = at::empty({2, logits_Nv.size(0)}, at::kFloat);
  packed[0].copy_(
      (logits_Nv.gather(-1, local.column.unsqueeze(-1)).squeeze(-1).to(at::kFloat) - max_N)
          .masked_fill(local.is_mine.logical_not(), 0));
  auto* sums = packed.mutable_data_ptr<float>() + logits_Nv.size(0);
  rows.for_each([&](int64_t row, kernels::LogitsRow x) {
    x.max = max[row];
    sums[row] = rows.kernel().row_exp_sum(x);
  });
  call.group.all_reduce(packed);
  const at::Tensor log_sum_N = packed[1].log();
  at::Tensor loss_N = log_sum_N - packed[0];
  if (call.options.z_loss != 0) {
    loss_N = loss_N + (log_sum_N + max_N).square() * call.options.z_loss;
  }
  return {loss_N.masked_fill(targets_N == call.options.ignore_index, 0), max_N, log_sum_N};
}

// With p the softmax, s the smoothing and V the vocabulary's size, the loss of a token has the
// gradient p (1 + 2 z lse) - (1 - s) [is target] - s / V.
at::Tensor gradient_of(const at::Tensor& logits_Nv, const at::Tensor& targets_N,
                       const Losses& saved, const at::Tensor& grad_N, const Call& call) {
  const CrossEntropyOptions& options = call.options;
  at::Tensor g_Nv = logits_Nv.to(saved.max_N.scalar_type()) - saved.max_N.unsqueeze(-1);
  g_Nv.sub_(saved.log_sum_N.unsqueeze(-1)).exp_();
  if (options.z_loss != 0) {
    const at::Tensor lse_N = saved.max_N + saved.log_sum_N;
    g_Nv.mul_((lse_N * (2 * options.z_loss) + 1).unsqueeze(-1));
  }
  const LocalTargets local(targets_N, call.vocab);
  const at::Tensor hit_N = local.is_mine.to(g_Nv.scalar_type()) * (options.label_smoothing - 1);
  g_Nv.scatter_add_(-1, local.column.unsqueeze(-1), hit_N.unsqueeze(-1));
  if (options.label_smoothing != 0) {
    g_Nv.sub_(options.label_smoothing / static_cast<double>(call.vocab_size));
  }
  // A token that counts for nothing has no gradient even where the loss's is NaN or infinite.
  const at::Tensor ignored_N = targets_N == options.ignore_index;
  g_Nv.mul_(grad_N.unsqueeze(-1)).masked_fill_(ignored_N.unsqueeze(-1), 0);
  return g_Nv.to(logits_Nv.scalar_type());
}

// Computes gradient_of in one pass; overwrites the logits if the call allows that.
at::Tensor fused_gradient(const at::Tensor& logits_Nv, const at::Tensor& targets_N,
                          const Losses& saved, const at::Tensor& grad_N, const Call& call) {
  const CrossEntropyOptions& options = call.options;
  const LogitsRows rows(logits_Nv);
  at::Tensor out_Nv = options.overwrites_logits ? logits_Nv.detach() : at::empty_like(logits_Nv);
  const at::Tensor targets = targets_N.contiguous(), grads = grad_N.to(at::kFloat).contiguous();
  const auto* target = targets.const_data_ptr<int64_t>();
  const auto* grad = grads.const_data_ptr<float>();
  const auto* max = saved.max_N.const_data_ptr<float>();
  const auto* log_sum = saved.log_sum_N.const_data_ptr<float>();
  rows.for_each([&](int64_t row, kernels::LogitsRow x) {
    char* out = static_cast<char*>(out_Nv.mutable_data_ptr()) + row * rows.row_bytes();
    if (target[row] == options.ignore_index) {
      std::memset(out, 0, static_cast<size_t>(rows.row_bytes()));
      return;
    }
    x.max = max[row];
    const auto lse_slope = static_cast<float>(1 + 2 * options.z_loss * (log_sum[row] + max[row]));
    const auto even =
        static_cast<float>(options.label_smoothing / static_cast<double>(call.vocab_size)) *
        grad[row];
    const float factor = grad[row] * lse_slope;
    const int64_t column = target[row] - call.vocab.start;
    const bool is_mine = column >= 0 && column < call.vocab.length;
    float at_target = 0;
    if (is_mine) {
      rows.kernel().widen(rows.at(row, column), &at_target, 1);
      at_target = std::exp(at_target - max[row] - log_sum[row]) * factor - even -
                  static_cast<float>(1 - options.label_smoothing) * grad[row];
    }
    rows.kernel().row_softmax(x, log_sum[row], factor, even, out);
    if (is_mine) rows.kernel().narrow(&at_target, out + column * rows.element_bytes(), 1);
  });
  return out_Nv;
}

bool is_fused(const at::Tensor& logits_Nv) {
  return element_kernel(logits_Nv) != nullptr && logits_Nv.is_contiguous();
}

struct CrossEntropyFunction : torch::autograd::Function<CrossEntropyFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& logits_Nv,
                            const at::Tensor& targets_N, const c10::intrusive_ptr<Call>& call) {
    const bool is_smooth = call->options.label_smoothing != 0;
    const Losses losses = is_fused(logits_Nv) && !is_smooth
                              ? fused_losses(logits_Nv, targets_N, *call)
                              : losses_of(logits_Nv, targets_N, *call);
    context->save_for_backward({logits_Nv, targets_N, losses.max_N, losses.log_sum_N});
    context->saved_data["call"] = c10::IValue::make_capsule(call);
    return losses.loss_N;
  }
  static variable_list backward(AutogradContext* context, variable_list grads) {
    check<ConfigError>(!at::GradMode::is_enabled(), kCrossEntropy,
                       ": a gradient of the gradient is not defined; call backward without "
                       "create_graph");
    const auto call =
        c10::static_intrusive_pointer_cast<Call>(context->saved_data["call"].toCapsule());
    check<ConfigError>(!call->is_spent, kCrossEntropy,
                       ": backward a second time with overwrites_logits; leave the option out");
    call->is_spent = call->options.overwrites_logits;
    const variable_list saved = context->get_saved_variables();
    const Losses losses = {at::Tensor(), saved[2], saved[3]};
    const auto gradient = is_fused(saved[0]) ? fused_gradient : gradient_of;
    return {gradient(saved[0], saved[1], losses, grads[0], *call), at::Tensor(), at::Tensor()};
  }
};

void check_call(const at::Tensor& logits, const at::Tensor& targets, const Call& call) {
  const CrossEntropyOptions& options = call.options;
  check<ShapeError>(logits.dim() >= 1 && c10::isFloatingType(logits.scalar_type()) &&
                        logits.sizes().slice(0, logits.dim() - 1) == targets.sizes() &&
                        logits.size(-1) == call.vocab.length,
                    kCrossEntropy, ": logits ", c10::toString(logits.scalar_type()), " ",
                    core::list_text(logits.sizes()), " for targets ",
                    core::list_text(targets.sizes()), ", expected floating [targets…, ",
                    call.vocab.length, "]");
  check<ShapeError>(targets.scalar_type() == at::kLong, kCrossEntropy, ": targets of dtype ",
                    c10::toString(targets.scalar_type()), ", expected int64");
  check<ShapeError>(
      call.vocab.start >= 0 && call.vocab.length >= 1 && call.vocab.end() <= call.vocab_size,
      kCrossEntropy, ": columns ", call.vocab.start, " to ", call.vocab.end() - 1,
      " of a vocabulary of ", call.vocab_size);
  check<ConfigError>(options.label_smoothing >= 0 && options.label_smoothing <= 1, kCrossEntropy,
                     ": label_smoothing ", options.label_smoothing, ", expected 0 to 1");
  check<ConfigError>(options.z_loss >= 0, kCrossEntropy, ": z_loss ", options.z_loss,
                     ", expected 0 or more");
}

// The number of tokens that count, here or in count_group. A bad target on one of its ranks is an
// error on all of them: the others would wait for it otherwise.
at::Tensor checked_count(const at::Tensor& targets, const Call& call) {
  const CrossEntropyOptions& options = call.options;
  const at::Tensor counts = targets != options.ignore_index;
  const at::Tensor bad = counts.logical_and((targets < 0).logical_or(targets >= call.vocab_size));
  const at::Tensor wrong = targets.masked_select(bad);
  at::Tensor numbers = at::stack({counts.sum(), bad.sum()});
  if (options.count_group) options.count_group->all_reduce(numbers);
  check<ShapeError>(wrong.numel() == 0, kCrossEntropy, ": target ",
                    wrong.numel() == 0 ? 0 : wrong[0].item<int64_t>(), ", expected 0 to ",
                    call.vocab_size - 1, " or ignore_index ", options.ignore_index);
  check<ShapeError>(
      numbers[1].item<int64_t>() == 0, kCrossEntropy, ": a target outside of the vocabulary of ",
      call.vocab_size, " on another rank of group ",
      options.count_group ? options.count_group->name() : "", "; its own message names it");
  return numbers[0];
}

}  // namespace

at::Tensor vocab_parallel_cross_entropy(const at::Tensor& logits_BTv, const at::Tensor& targets_BT,
                                        shard::Range vocab, int64_t vocab_size,
                                        const dist::Group& group,
                                        const CrossEntropyOptions& options) {
  const auto call = c10::make_intrusive<Call>(vocab, vocab_size, group, options);
  check_call(logits_BTv, targets_BT, *call);
  const at::Tensor count = checked_count(targets_BT, *call);
  const at::Tensor loss_N = CrossEntropyFunction::apply(logits_BTv.reshape({-1, vocab.length}),
                                                        targets_BT.reshape(-1), call);
  if (options.reduction == Reduction::kNone) return loss_N.view(targets_BT.sizes());
  const at::Tensor sum = loss_N.sum();
  return options.reduction == Reduction::kSum ? sum : sum / count;
}

VocabParallelCrossEntropyImpl::VocabParallelCrossEntropyImpl(int64_t vocab_size, dist::Group group,
                                                             CrossEntropyOptions options)
    : vocab_size_(vocab_size), group_(std::move(group)), options_(std::move(options)) {
  const shard::NamedSplit split{"nn.VocabParallelCrossEntropy: vocabulary", vocab_size, 1};
  vocab_ = split.range(group_.size(), group_.rank());
}

at::Tensor VocabParallelCrossEntropyImpl::forward(const at::Tensor& logits_BTv,
                                                  const at::Tensor& targets_BT) {
  return vocab_parallel_cross_entropy(logits_BTv, targets_BT, vocab_, vocab_size_, group_,
                                      options_);
}

}  // namespace weft::nn
