#include "weft/nn/layers/mixture_of_experts.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/argsort.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <utility>

#include "weft/core/error.h"
#include "weft/ops/collectives.h"

// Shape letters: B batch, T tokens, S all tokens, D width, E experts, k experts per token.

namespace weft::nn {

using core::check;
using core::ConfigError;
using core::ShapeError;

namespace {

std::atomic<uint64_t> num_exchanged_partials = 0;

}  // namespace

uint64_t PartialLinearImpl::num_exchanges() { return num_exchanged_partials; }

PartialLinearImpl::PartialLinearImpl(std::shared_ptr<LinearLike> inner,
                                     std::optional<LinearCut> cut)
    : inner_(register_module("inner", std::move(inner))), cut_(std::move(cut)) {
  if (!cut_) return;
  const bool by_rows = cut_->kind == ShardKind::kAllToSharded;
  const int64_t held = by_rows ? inner_->out_features() : inner_->in_features();
  const int64_t expected = cut_->layout.lengths().at(static_cast<size_t>(cut_->group.rank()));
  check<ShapeError>(held == expected, "nn.PartialLinear: the inner linear has ", held,
                    by_rows ? " output" : " input", " features, expected this rank's ", expected,
                    " of ", cut_->layout.size);
  check<ShapeError>(by_rows || !inner_->has_bias(),
                    "nn.PartialLinear: a bias would be added once per rank; leave it out");
}

int64_t PartialLinearImpl::in_features() const {
  const bool by_columns = cut_ && cut_->kind == ShardKind::kShardedToAll;
  return by_columns ? cut_->layout.size : inner_->in_features();
}

int64_t PartialLinearImpl::out_features() const {
  const bool by_rows = cut_ && cut_->kind == ShardKind::kAllToSharded;
  return by_rows ? cut_->layout.size : inner_->out_features();
}

void PartialLinearImpl::set_inner(std::shared_ptr<LinearLike> inner) {
  check<ShapeError>(inner->in_features() == inner_->in_features() &&
                        inner->out_features() == inner_->out_features(),
                    "nn.PartialLinear.set_inner: [", inner->out_features(), ", ",
                    inner->in_features(), "], expected [", inner_->out_features(), ", ",
                    inner_->in_features(), "] as before");
  inner_ = replace_module("inner", std::move(inner));
  ++num_exchanged_partials;
}

ExpertImpl::ExpertImpl(PartialLinear gate, PartialLinear up, PartialLinear down,
                       const ExpertNames& names)
    : gate_(register_module(names.gate, std::move(gate))),
      up_(register_module(names.up, std::move(up))),
      down_(register_module(names.down, std::move(down))) {
  const int64_t width = gate_->inner()->out_features();
  check<ShapeError>(up_->inner()->out_features() == width && down_->inner()->in_features() == width,
                    "nn.Expert: gate, up and down have ", width, ", ", up_->inner()->out_features(),
                    " and ", down_->inner()->in_features(),
                    " ffn features here, expected the same");
}

at::Tensor ExpertImpl::forward(const at::Tensor& x_SD) {
  return down_->forward(at::silu(gate_->forward(x_SD)) * up_->forward(x_SD));
}

// Which experts each token takes, and by which weight.
struct MixtureOfExpertsImpl::Routing {
  /// Tokens' places in the flattened [S, k], sorted by expert, and how many each expert has.
  at::Tensor slots;
  std::vector<int64_t> counts;
  /// [S, k].
  at::Tensor weights_Sk;
  /// [S, 1], of the shared expert, or undefined.
  at::Tensor shared_S1;
};

MixtureOfExpertsImpl::MixtureOfExpertsImpl(MixtureOfExpertsParts parts, RoutingOptions options,
                                           dist::Group group)
    : router_(register_module("gate", PartialLinear(std::move(parts.router)))),
      experts_(std::move(parts.experts)),
      expert_numbers_(std::move(parts.expert_numbers)),
      options_(options),
      group_(std::move(group)) {
  const int64_t count = num_experts();
  check<ConfigError>(options_.top_k >= 1 && options_.top_k <= count,
                     "nn.MixtureOfExperts: ", options_.top_k, " experts per token of ", count,
                     ", expected 1 to ", count);
  check<ShapeError>(!experts_.empty() && experts_.size() == expert_numbers_.size(),
                    "nn.MixtureOfExperts: ", experts_.size(), " experts and ",
                    expert_numbers_.size(), " numbers, expected the same and at least one");
  const bool is_ascending = std::adjacent_find(expert_numbers_.begin(), expert_numbers_.end(),
                                               std::greater_equal<>()) == expert_numbers_.end();
  check<ShapeError>(is_ascending && expert_numbers_.front() >= 0 && expert_numbers_.back() < count,
                    "nn.MixtureOfExperts: expert numbers ", core::list_text(expert_numbers_),
                    ", expected ascending ones below ", count);
  const auto list = register_module("experts", std::make_shared<torch::nn::Module>());
  for (size_t i = 0; i < experts_.size(); ++i) {
    list->register_module(std::to_string(expert_numbers_[i]), experts_[i]);
  }
  check<ShapeError>(parts.shared.is_empty() == (parts.shared_gate == nullptr),
                    "nn.MixtureOfExperts: a shared expert and its gate belong together");
  if (parts.shared.is_empty()) return;
  shared_ = register_module("shared_expert", std::move(parts.shared));
  shared_gate_ = register_module("shared_expert_gate", PartialLinear(std::move(parts.shared_gate)));
}

// The gradient of a weight is the sum of what the ranks' parts of the outputs say, so all weights
// go through one mp_copy. Router and gate see x itself: their part of x's gradient is whole
// everywhere.
MixtureOfExpertsImpl::Routing MixtureOfExpertsImpl::route(const at::Tensor& x_SD) const {
  const auto type = x_SD.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor scores_SE = at::softmax(router_->inner()->forward(x_SD), -1, type);
  auto [weights_Sk, experts_Sk] = at::topk(scores_SE, options_.top_k, -1);
  if (options_.normalize) weights_Sk = weights_Sk / weights_Sk.sum(-1, true);
  weights_Sk = weights_Sk.to(x_SD.scalar_type());
  Routing routing;
  if (!shared_.is_empty()) {
    const at::Tensor gate_S1 = at::sigmoid(shared_gate_->inner()->forward(x_SD));
    const at::Tensor both = ops::mp_copy(at::cat({weights_Sk, gate_S1}, -1), group_);
    routing.weights_Sk = both.narrow(-1, 0, options_.top_k);
    routing.shared_S1 = both.narrow(-1, options_.top_k, 1);
  } else {
    routing.weights_Sk = ops::mp_copy(weights_Sk, group_);
  }
  const at::Tensor flat = experts_Sk.flatten();
  routing.slots = at::argsort(flat, /*stable=*/true);
  const at::Tensor counts = at::bincount(flat, {}, num_experts());
  const auto* first = counts.const_data_ptr<int64_t>();
  routing.counts.assign(first, first + counts.numel());
  return routing;
}

at::Tensor MixtureOfExpertsImpl::run_experts(const at::Tensor& x_SD, const Routing& routing) {
  const bool takes_all = at::GradMode::is_enabled();
  at::Tensor sum_SD = at::zeros_like(x_SD);
  const at::Tensor weights = routing.weights_Sk.flatten();
  int64_t start = 0, number = 0;
  for (size_t i = 0; i < experts_.size(); ++i) {
    for (; number < expert_numbers_[i]; ++number) start += routing.counts[number];
    const int64_t tokens = routing.counts[number];
    if (tokens == 0 && !takes_all) continue;
    const at::Tensor slots = routing.slots.narrow(0, start, tokens);
    const at::Tensor rows = slots.floor_divide(options_.top_k);
    const at::Tensor y = experts_[i]->forward(x_SD.index_select(0, rows));
    sum_SD.index_add_(0, rows, y * weights.index_select(0, slots).unsqueeze(-1));
  }
  return sum_SD;
}

at::Tensor MixtureOfExpertsImpl::forward(const at::Tensor& x_BTD) {
  const at::Tensor x_SD = x_BTD.flatten(0, -2);
  const Routing routing = route(x_SD);
  const at::Tensor copied_SD = ops::mp_copy(x_SD, group_);
  at::Tensor part_SD = run_experts(copied_SD, routing);
  if (!shared_.is_empty()) part_SD = part_SD + shared_->forward(copied_SD) * routing.shared_S1;
  return ops::mp_reduce(part_SD, group_).view_as(x_BTD);
}

}  // namespace weft::nn
