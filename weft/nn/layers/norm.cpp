#include "weft/nn/layers/norm.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "weft/core/error.h"
#include "weft/nn/layers/element_kernel.h"
#include "weft/ops/collectives.h"
#include "weft/ops/shared_gradient.h"

namespace weft::nn {
namespace {

at::Tensor checked_weight(at::Tensor weight, const char* where) {
  core::check<core::ShapeError>(weight.dim() == 1, where, ": weight ",
                                core::list_text(weight.sizes()), ", expected [D]");
  return weight;
}

using core::check;
using core::ConfigError;
using kernels::NormRows;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// All rows of a call, in blocks, none of which has rows of two sequences.
struct Rows {
  static constexpr int64_t kBlock = 64;
  NormRows all;
  int64_t row_bytes = 0;
  int64_t sequences = 1;
  int64_t rows_of_sequence() const { return all.rows / sequences; }
  int64_t blocks_of_sequence() const { return (rows_of_sequence() + kBlock - 1) / kBlock; }
  int64_t num_blocks() const { return sequences * blocks_of_sequence(); }
};

struct NormOrder : torch::CustomClassHolder {
  explicit NormOrder(std::shared_ptr<const shard::SumPlan> o) : order(std::move(o)) {}
  std::shared_ptr<const shard::SumPlan> order;
};
using NormOrderPtr = c10::intrusive_ptr<NormOrder>;

Rows rows_of(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& scale, double eps) {
  Rows rows;
  rows.all.size = x.size(-1);
  rows.all.rows = x.numel() / rows.all.size;
  rows.all.eps = static_cast<float>(eps);
  rows.all.x = x.const_data_ptr();
  rows.all.weight = weight.const_data_ptr();
  rows.all.scale = scale.mutable_data_ptr<float>();
  rows.row_bytes = rows.all.size * static_cast<int64_t>(x.element_size());
  return rows;
}

// Calls use(block, its rows, the byte that they begin at).
template <class Use>
void for_row_blocks(const Rows& rows, Use&& use) {
  const int64_t blocks = rows.blocks_of_sequence(), of_sequence = rows.rows_of_sequence();
  at::parallel_for(0, rows.num_blocks(), 2, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t within = block % blocks * Rows::kBlock;
      const int64_t first = block / blocks * of_sequence + within;
      NormRows own = rows.all;
      own.rows = std::min(Rows::kBlock, of_sequence - within);
      own.x = static_cast<const char*>(rows.all.x) + first * rows.row_bytes;
      own.scale = rows.all.scale + first;
      use(block, own, first * rows.row_bytes);
    }
  });
}

// Parameters may be given their memory by the first operation that uses them (train's sharded
// units): there has to be one before their pointer is taken.
at::Tensor announced(const at::Tensor& parameter) { return parameter.detach(); }

// The sum of rows one after another: libtorch's own depends on the column and on threads.
at::Tensor sum_of_rows(const at::Tensor& rows_ND) {
  at::Tensor sum = at::zeros({rows_ND.size(1)}, at::kFloat);
  auto* to = sum.mutable_data_ptr<float>();
  const float* row = rows_ND.const_data_ptr<float>();
  for (int64_t i = 0; i < rows_ND.size(0); ++i, row += rows_ND.size(1)) {
    for (int64_t d = 0; d < rows_ND.size(1); ++d) to[d] += row[d];
  }
  return sum;
}

// The same by sequences: each one's blocks, then the sequences' sums by `order`.
at::Tensor sum_of_blocks(const at::Tensor& blocks_ND, const Rows& rows, const NormOrder& order) {
  std::vector<at::Tensor> sums;
  for (int64_t sequence = 0; sequence < rows.sequences; ++sequence) {
    const int64_t count = rows.blocks_of_sequence();
    sums.push_back(sum_of_rows(blocks_ND.narrow(0, sequence * count, count)));
  }
  for (const shard::SumStep& step : order.order->steps) {
    sums[static_cast<size_t>(step.to)].add_(sums[static_cast<size_t>(step.from)]);
  }
  return sums.front();
}

// One pass each way, which keeps x and a number per row. Without an order all rows are one
// sequence's.
struct NormFunction : torch::autograd::Function<NormFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x_in,
                            const at::Tensor& weight, double eps, const NormOrderPtr& order) {
    const at::Tensor x = x_in.contiguous(), own_weight = announced(weight);
    at::Tensor y = at::empty_like(x);
    at::Tensor scale = at::empty({x.numel() / x.size(-1)}, at::kFloat);
    context->save_for_backward({x, weight, scale});
    context->saved_data["eps"] = eps;
    context->saved_data["order"] = c10::IValue::make_capsule(order);
    const auto* kernel = element_kernel(x);
    for_row_blocks(rows_of(x, own_weight, scale, eps),
                   [&](int64_t /*block*/, NormRows rows, int64_t first_byte) {
                     rows.y = static_cast<char*>(y.mutable_data_ptr()) + first_byte;
                     kernel->norm(rows);
                   });
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list grads) {
    check<ConfigError>(!at::GradMode::is_enabled(),
                       "nn.RMSNorm: a gradient of the gradient is not defined; call backward "
                       "without create_graph");
    const variable_list saved = context->get_saved_variables();
    const at::Tensor &x = saved[0], weight = announced(saved[1]);
    const at::Tensor d_y = grads[0].contiguous();
    at::Tensor d_x = at::empty_like(x);
    Rows all = rows_of(x, weight, saved[2], context->saved_data["eps"].toDouble());
    const auto order =
        c10::static_intrusive_pointer_cast<NormOrder>(context->saved_data["order"].toCapsule());
    all.sequences = std::ssize(order->order->pieces);
    // Sums of blocks of rows, so that they depend on no number of threads.
    at::Tensor d_weights = at::zeros({all.num_blocks(), weight.size(0)}, at::kFloat);
    const auto* kernel = element_kernel(x);
    for_row_blocks(all, [&](int64_t block, const NormRows& rows, int64_t first_byte) {
      kernels::NormGradient gradient;
      gradient.d_y = static_cast<const char*>(d_y.const_data_ptr()) + first_byte;
      gradient.d_x = static_cast<char*>(d_x.mutable_data_ptr()) + first_byte;
      gradient.d_weight = d_weights.mutable_data_ptr<float>() + block * weight.size(0);
      kernel->norm_backward(rows, gradient);
    });
    return {d_x, sum_of_blocks(d_weights, all, *order).to(weight.scalar_type()), at::Tensor(),
            at::Tensor()};
  }
};

// What NormFunction is compared with, and what other types take.
at::Tensor composed(const at::Tensor& x, const at::Tensor& weight, double eps) {
  if (x.scalar_type() == weight.scalar_type() && x.scalar_type() == at::kFloat) {
    return at::rms_norm(x, weight.sizes(), weight, eps);
  }
  const at::Tensor y = at::rms_norm(x.to(at::kFloat), weight.sizes(), weight.to(at::kFloat), eps);
  return y.to(x.scalar_type());
}

NormOrderPtr order_of_one() {
  shard::SumPlan one;
  one.pieces = {{0, 1}};
  one.nodes = {0};
  one.slots = 1;
  return c10::make_intrusive<NormOrder>(std::make_shared<const shard::SumPlan>(std::move(one)));
}

at::Tensor normed(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const bool fits = x.dim() >= 1 && x.size(-1) == weight.size(0) && x.numel() > 0;
  if (!fits || x.scalar_type() != weight.scalar_type() || element_kernel(x) == nullptr) {
    return composed(x, weight, eps);
  }
  static const NormOrderPtr kOne = order_of_one();
  return NormFunction::apply(x, weight, eps, kOne);
}

// With an offset in float32: the sum of 1 and a small weight needs its digits.
at::Tensor with_offset(const at::Tensor& weight, double offset) {
  if (offset == 0) return weight;
  return weight.scalar_type() == at::kDouble ? weight + offset : weight.to(at::kFloat) + offset;
}

// The runs within a rank's shard that no rank before it holds.
std::vector<shard::Range> first_copies(const shard::Layout& layout, int64_t rank) {
  const std::vector<int64_t> lengths = layout.lengths();
  const auto own = lengths.begin() + rank;
  const int64_t start = std::accumulate(lengths.begin(), own, int64_t{0}), end = start + *own;
  std::vector<shard::Range> runs;
  for (const shard::Range& range : layout.gather_ranges()) {
    const int64_t first = std::max(range.start, start), last = std::min(range.end(), end);
    if (first < last) runs.push_back({first - start, last - first});
  }
  return runs;
}

}  // namespace

RMSNormImpl::RMSNormImpl(at::Tensor weight_in, double eps, bool requires_grad, double offset)
    : eps_(eps), offset_(offset) {
  weight = register_parameter("weight", checked_weight(std::move(weight_in), "nn.RMSNorm"),
                              requires_grad);
}

at::Tensor RMSNormImpl::forward(const at::Tensor& x) {
  return normed(x, with_offset(weight, offset_), eps_);
}

at::Tensor RMSNormImpl::forward_in_order(const at::Tensor& x,
                                         const std::shared_ptr<const shard::SumPlan>& order) {
  const int64_t rows = x.numel() / x.size(-1);
  check<core::ShapeError>(x.is_cpu() && x.scalar_type() == at::kFloat &&
                              x.size(-1) == weight.size(0) && rows > 0 &&
                              rows % std::ssize(order->pieces) == 0,
                          "nn.RMSNorm: input ", core::list_text(x.sizes()), " for ",
                          order->pieces.size(), " sequences and a weight of ", weight.size(0),
                          ", expected float32 on the CPU, as many rows for each");
  return NormFunction::apply(x, with_offset(weight, offset_), eps_,
                             c10::make_intrusive<NormOrder>(order));
}

at::Tensor RMSNormImpl::whole_weight() const { return with_offset(weight.detach(), offset_); }

at::Tensor unit_norm(const at::Tensor& x, double eps) {
  core::check<core::ShapeError>(x.dim() >= 1, "nn.unit_norm: a number, expected [..., D]");
  return normed(x, at::ones({x.size(-1)}, x.options().requires_grad(false)), eps);
}

SequenceParallelRMSNormImpl::SequenceParallelRMSNormImpl(at::Tensor weight_in, double eps,
                                                         dist::Group group, bool requires_grad)
    : eps_(eps), group_(std::move(group)) {
  weight = register_parameter(
      "weight", checked_weight(std::move(weight_in), "nn.SequenceParallelRMSNorm"), requires_grad);
}

at::Tensor SequenceParallelRMSNormImpl::forward(const at::Tensor& x) {
  return normed(x, ops::mp_copy(weight, group_), eps_);
}

HeadRMSNormImpl::HeadRMSNormImpl(at::Tensor weight_in, double eps, dist::Group group,
                                 bool requires_grad, double offset)
    : eps_(eps), group_(std::move(group)), offset_(offset) {
  weight = register_parameter("weight", checked_weight(std::move(weight_in), "nn.HeadRMSNorm"),
                              requires_grad);
}

at::Tensor HeadRMSNormImpl::forward(const at::Tensor& x_BTnH) {
  core::check<core::ShapeError>(x_BTnH.dim() == 4 && x_BTnH.size(3) == weight.size(0),
                                "nn.HeadRMSNorm: input ", core::list_text(x_BTnH.sizes()),
                                ", expected [B, T, heads, ", weight.size(0), "]");
  return normed(x_BTnH, with_offset(ops::mp_copy(weight, group_), offset_), eps_);
}

at::Tensor HeadRMSNormImpl::whole_weight() const { return with_offset(weight.detach(), offset_); }

ShardedRMSNormImpl::ShardedRMSNormImpl(at::Tensor weight_in, shard::Layout layout, double eps,
                                       dist::Group group, bool requires_grad)
    : ShardedRMSNormImpl(std::move(weight_in), layout.size, eps, std::move(group), requires_grad) {
  const int64_t expected = layout.lengths().at(static_cast<size_t>(group_.rank()));
  core::check<core::ShapeError>(weight.size(0) == expected, "nn.ShardedRMSNorm: weight [",
                                weight.size(0), "], expected this rank's ", expected, " of ",
                                layout.size);
  counted_ = first_copies(layout, group_.rank());
  layout_ = std::move(layout);
}

ShardedRMSNormImpl::ShardedRMSNormImpl(at::Tensor weight_in, int64_t whole_size, double eps,
                                       dist::Group group, bool requires_grad)
    : whole_size_(whole_size), eps_(eps), group_(std::move(group)) {
  weight = register_parameter("weight", checked_weight(std::move(weight_in), "nn.ShardedRMSNorm"),
                              requires_grad);
  core::check<core::ShapeError>(weight.size(0) <= whole_size_, "nn.ShardedRMSNorm: weight [",
                                weight.size(0), "] of a whole of ", whole_size_,
                                "; give this rank's part");
  counted_ = {{0, weight.size(0)}};
}

// [..., 1]. A rank without a run has a sum all the same: its backward takes part in collectives.
at::Tensor ShardedRMSNormImpl::own_sum(const at::Tensor& values) const {
  if (counted_.empty()) return values.narrow(-1, 0, 0).sum(-1, true);
  at::Tensor sum;
  for (const shard::Range& run : counted_) {
    const bool is_all = run.length == values.size(-1);
    const at::Tensor part = is_all ? values : values.narrow(-1, run.start, run.length);
    const at::Tensor squares = part.square().sum(-1, true);
    sum = sum.defined() ? sum + squares : squares;
  }
  return sum;
}

at::Tensor ShardedRMSNormImpl::forward(const at::Tensor& x) {
  core::check<core::ShapeError>(x.dim() >= 1 && x.size(-1) == weight.size(0),
                                "nn.ShardedRMSNorm: input ", core::list_text(x.sizes()),
                                ", expected the last dim to be this rank's ", weight.size(0),
                                " of ", whole_size_);
  const at::ScalarType type = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  if (group_.size() == 1 && type == at::kFloat) return normed(x, weight, eps_);
  const at::Tensor values = x.to(type);
  const at::Tensor own = own_sum(values);
  // Every rank scales its part by the whole's sum, so gradients of the sum come from all ranks.
  const at::Tensor sum = ops::mp_copy(ops::mp_reduce(own, group_), group_);
  const at::Tensor scale = (sum / static_cast<double>(whole_size_) + eps_).rsqrt();
  const at::Tensor own_weight =
      layout_ ? ops::sum_shared_gradient(weight, *layout_, group_) : weight;
  return (values * scale * own_weight.to(type)).to(x.scalar_type());
}

void RMSNormImpl::exchange_members(const MemberExchange& exchange) {
  weight = parameters_["weight"] = exchange.parameter("weight", weight);
}

void SequenceParallelRMSNormImpl::exchange_members(const MemberExchange& exchange) {
  weight = parameters_["weight"] = exchange.parameter("weight", weight);
}

void HeadRMSNormImpl::exchange_members(const MemberExchange& exchange) {
  weight = parameters_["weight"] = exchange.parameter("weight", weight);
}

void ShardedRMSNormImpl::exchange_members(const MemberExchange& exchange) {
  weight = parameters_["weight"] = exchange.parameter("weight", weight);
}

}  // namespace weft::nn
