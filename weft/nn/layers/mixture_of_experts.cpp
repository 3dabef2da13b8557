#include "weft/nn/layers/mixture_of_experts.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/argsort.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/scatter.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <utility>

#include "weft/core/error.h"
#include "weft/nn/layers/swiglu.h"
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
                                     std::optional<LinearCut> cut, at::Tensor bias_in)
    : inner_(register_module("inner", std::move(inner))), cut_(std::move(cut)) {
  if (bias_in.defined()) bias = register_parameter("bias", std::move(bias_in), false);
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

bool PartialLinearImpl::adds_bias() const {
  if (!cut_) return true;
  for (int64_t rank = 0; rank < cut_->group.rank(); ++rank) {
    if (!cut_->layout.of(rank).empty()) return false;
  }
  return true;
}

// Where another rank adds the bias, nothing that has its gradient is added.
at::Tensor PartialLinearImpl::forward(const at::Tensor& x) {
  at::Tensor y = inner_->forward(x);
  if (!bias.defined()) return y;
  const at::Tensor own = bias.to(y.scalar_type());
  if (adds_bias()) return y + own;
  return at::GradMode::is_enabled() ? y + (own - own.detach()) : y;
}

const LinearCut* PartialLinearImpl::adapter_cut() const {
  if (!cut_) return nullptr;
  const std::vector<int64_t> lengths = cut_->layout.lengths();
  const bool is_alone = std::ranges::count(lengths, int64_t{0}) + 1 == std::ssize(lengths);
  return is_alone ? nullptr : &*cut_;
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
                       const ExpertNames& names, const Gating& gating)
    : gate_(register_module(names.gate, std::move(gate))),
      up_(register_module(names.up, std::move(up))),
      down_(register_module(names.down, std::move(down))),
      gating_(gating) {
  const int64_t width = gate_->inner()->out_features();
  check<ShapeError>(up_->inner()->out_features() == width && down_->inner()->in_features() == width,
                    "nn.Expert: gate, up and down have ", width, ", ", up_->inner()->out_features(),
                    " and ", down_->inner()->in_features(),
                    " ffn features here, expected the same");
}

at::Tensor ExpertImpl::forward(const at::Tensor& x_SD) {
  return down_->forward(gated(gate_->forward(x_SD), up_->forward(x_SD), gating_));
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
    : router_(register_module(parts.router_name, PartialLinear(std::move(parts.router)))),
      experts_(std::move(parts.experts)),
      expert_numbers_(std::move(parts.expert_numbers)),
      ordered_(std::move(parts.ordered)),
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
  if (parts.choice_bias.defined()) {
    choice_bias_ = register_buffer("choice_bias", std::move(parts.choice_bias));
  }
  if (parts.expert_factors.defined()) {
    expert_factors_ = register_buffer("expert_factors", std::move(parts.expert_factors));
    check<ShapeError>(expert_factors_.numel() == count,
                      "nn.MixtureOfExperts: ", expert_factors_.numel(), " factors of ", count,
                      " experts, expected as many");
  }
  check<ConfigError>(options_.num_groups >= 1 && count % options_.num_groups == 0 &&
                         options_.groups_per_token >= 1 && options_.best_of_group >= 1 &&
                         options_.groups_per_token <= options_.num_groups,
                     "nn.MixtureOfExperts: ", options_.groups_per_token, " of ",
                     options_.num_groups, " groups of ", count, " experts, expected a divisor");
  check<ShapeError>(!parts.shared.is_empty() || parts.shared_gate == nullptr,
                    "nn.MixtureOfExperts: a gate without a shared expert");
  if (parts.shared.is_empty()) return;
  const bool is_gated = parts.shared_gate != nullptr;
  shared_ = register_module(is_gated ? "shared_expert" : "shared_experts", std::move(parts.shared));
  if (!is_gated) return;
  shared_gate_ = register_module("shared_expert_gate", PartialLinear(std::move(parts.shared_gate)));
}

// Each token's experts, [S, k].
at::Tensor MixtureOfExpertsImpl::chosen(const at::Tensor& scores_SE) const {
  const at::NoGradGuard no_grad;
  at::Tensor choice_SE = choice_bias_.defined() ? scores_SE + choice_bias_ : scores_SE;
  if (options_.num_groups > 1) {
    const at::Tensor groups_SGe = choice_SE.unflatten(-1, {options_.num_groups, -1});
    const int64_t best = std::min(options_.best_of_group, groups_SGe.size(-1));
    const at::Tensor sums_SG = std::get<0>(at::topk(groups_SGe, best, -1)).sum(-1);
    const at::Tensor taken = std::get<1>(at::topk(sums_SG, options_.groups_per_token, -1));
    const at::Tensor is_taken = at::zeros_like(sums_SG).scatter(-1, taken, 1).to(at::kBool);
    choice_SE = groups_SGe.masked_fill(is_taken.logical_not().unsqueeze(-1), 0).flatten(-2);
  }
  return std::get<1>(at::topk(choice_SE, options_.top_k, -1));
}

// The gradient of a weight is the sum of what the ranks' parts of the outputs say, so all weights
// go through one mp_copy. Router and gate see x itself: their part of x's gradient is whole
// everywhere.
MixtureOfExpertsImpl::Routing MixtureOfExpertsImpl::route(const at::Tensor& x_SD) const {
  const auto type = x_SD.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor logits_SE = router_->inner()->forward(x_SD);
  const at::Tensor scores_SE =
      options_.has_sigmoids ? at::sigmoid(logits_SE.to(type)) : at::softmax(logits_SE, -1, type);
  const at::Tensor experts_Sk = chosen(scores_SE);
  at::Tensor weights_Sk = scores_SE.gather(-1, experts_Sk);
  // Sigmoids may all be 0.
  const double least = options_.has_sigmoids ? 1e-20 : 0;
  if (options_.normalize) weights_Sk = weights_Sk / (weights_Sk.sum(-1, true) + least);
  if (options_.scale != 1) weights_Sk = weights_Sk * options_.scale;
  if (expert_factors_.defined()) {
    weights_Sk = weights_Sk *
                 expert_factors_.to(type).index_select(0, experts_Sk.flatten()).view_as(weights_Sk);
  }
  weights_Sk = weights_Sk.to(x_SD.scalar_type());
  Routing routing;
  if (!shared_gate_.is_empty()) {
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

at::Tensor MixtureOfExpertsImpl::forward(const at::Tensor& x_BTD, const at::Tensor& routed_BTD) {
  const at::Tensor x_SD = x_BTD.flatten(0, -2);
  const Routing routing = route(routed_BTD.flatten(0, -2));
  const at::Tensor copied_SD = ops::mp_copy(x_SD, group_);
  at::Tensor part_SD = run_experts(copied_SD, routing);
  if (!shared_.is_empty()) {
    const at::Tensor shared_SD = shared_->forward(copied_SD);
    part_SD = part_SD + (shared_gate_.is_empty() ? shared_SD : shared_SD * routing.shared_S1);
  }
  return ops::mp_reduce(part_SD, group_).view_as(x_BTD);
}

}  // namespace weft::nn
