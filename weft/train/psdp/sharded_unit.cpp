#include "weft/train/psdp/sharded_unit.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "weft/core/error.h"
#include "weft/train/counted_once.h"
#include "weft/train/psdp/sharded_module.h"
#include "weft/train/psdp/square_sum.h"
#include "weft/train/psdp/storage_watch.h"

namespace weft::train {
namespace {

using core::check;

std::vector<int64_t> numels(const std::vector<nn::ParameterInfo>& parameters) {
  std::vector<int64_t> all;
  for (const nn::ParameterInfo& parameter : parameters) all.push_back(parameter.tensor.numel());
  return all;
}

// The part of `values` that belongs into `kept`. `values` lie at `place` in the run, `kept` is its
// `range`.
void copy_part(const at::Tensor& kept, const shard::Range& range, const at::Tensor& values,
               const shard::Range& place) {
  const int64_t start = std::max(range.start, place.start);
  const int64_t length = std::min(range.end(), place.end()) - start;
  if (length <= 0) return;
  kept.narrow(0, start - range.start, length).copy_(values.narrow(0, start - place.start, length));
}

bool all_partial(const std::string& name, const std::vector<nn::ParameterInfo>& parameters) {
  const auto partial =
      std::ranges::count(parameters, nn::GradientKind::kPartial, &nn::ParameterInfo::gradient);
  check<core::InternalError>(partial == 0 || partial == std::ssize(parameters),
                             "train.ShardedUnit: ", name,
                             ": complete and partial gradients in one unit");
  return partial > 0;
}

}  // namespace

ShardedUnit::ShardedUnit(std::string name, std::vector<nn::ParameterInfo> parameters,
                         const MeshGroups& groups, const ShardOptions& options, BufferPool& pool,
                         const std::vector<at::Tensor>& frozen)
    : name_(std::move(name)),
      parameters_(std::move(parameters)),
      groups_(groups),
      layout_(numels(parameters_), groups.data.size(), groups.replica.size()),
      dtype_(options.dtype),
      pool_(pool),
      is_partial_(all_partial(name_, parameters_)) {
  const at::NoGradGuard no_grad;
  if (!frozen.empty()) frozen_ = std::make_unique<FrozenShare>(frozen, groups.data, pool);
  take_over_parameters(options);
  place_parameters();
  if (options.exact_sequences > 0) {
    tree_ = std::make_unique<GradientTree>(options.exact_sequences, options.exact_together,
                                           groups_.batch);
  }
  // The tree makes what is owned at once.
  const bool is_owned = groups_.replica.size() == 1 || tree_ != nullptr;
  gradient_ = at::zeros({is_owned ? layout_.owned_length() : layout_.share_length()},
                        share_.options().dtype(at::kFloat));
  owned_gradient_ = is_owned ? gradient_ : at::empty({layout_.owned_length()}, gradient_.options());
  for (const auto& piece :
       layout_.pieces(layout_.owned(groups_.data.rank(), groups_.replica.rank()))) {
    for (const shard::Range& range : counted_once(slice_of(piece))) {
      counted_.push_back({piece.offset + range.start - piece.elements.start, range.length});
    }
  }
}

// Masters are copied from the values before these are rounded. Parameters are handled one after
// another, so that the whole values of only one are in memory.
void ShardedUnit::take_over_parameters(const ShardOptions& options) {
  const at::TensorOptions kind = parameters_.empty()
                                     ? at::TensorOptions(at::kFloat)
                                     : parameters_.front().tensor.options().requires_grad(false);
  const shard::Range share = layout_.share(groups_.data.rank());
  const shard::Range owned = layout_.owned(groups_.data.rank(), groups_.replica.rank());
  share_ = at::zeros({share.length}, kind.dtype(dtype_));
  master_ = dtype_ == at::kFloat ? share_.narrow(0, owned.start - share.start, owned.length)
                                 : at::zeros({owned.length}, kind.dtype(at::kFloat));
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const nn::ParameterInfo& parameter = parameters_[i];
    const at::Tensor values = options.values ? options.values(parameter.name) : parameter.tensor;
    check<core::ShapeError>(values.numel() == parameter.tensor.numel(),
                            "train.shard_module: ", parameter.name, ": values of shape ",
                            values.sizes(), ", expected ", parameter.tensor.sizes());
    for (const auto& [kept, range] : {std::pair(share_, share), std::pair(master_, owned)}) {
      copy_part(kept, range, values.detach().reshape({-1}), layout_.parameter(i));
    }
  }
}

void ShardedUnit::place_parameters() {
  run_ = holds_all() ? share_ : at::empty({layout_.length()}, share_.options());
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const shard::Range range = layout_.parameter(i);
    at::Tensor& parameter = parameters_[i].tensor;
    const at::Tensor view = run_.narrow(0, range.start, range.length).view(parameter.sizes());
    parameter.set_data(view);
  }
  if (holds_all()) {
    is_gathered_ = true;
  } else {
    run_.storage().set_data_ptr(run_.storage().allocator()->allocate(0));
    run_.storage().set_nbytes(0);
  }
}

void ShardedUnit::gather() {
  begin_gather();
  finish_gather();
}

void ShardedUnit::finish_gather() {
  const auto pending = std::move(pending_);
  if (pending != nullptr) pending->wait();
  if (frozen_ != nullptr) frozen_->finish_gather();
}

void ShardedUnit::begin_gather() {
  if (!is_gathered_) begin_gather_anew();
}

void ShardedUnit::begin_gather_anew() {
  finish_gather();
  const at::NoGradGuard no_grad;
  const WatchPause pause;
  fill_without_values();
  if (!parameters_.empty()) pending_ = groups_.data.begin_all_gather_into(run_, share_);
  if (frozen_ != nullptr) frozen_->begin_gather();
}

void ShardedUnit::release() {
  if (!is_gathered_ || holds_all()) return;
  gather();
  pool_.drain(run_);
  if (frozen_ != nullptr) frozen_->drain();
  is_gathered_ = false;
}

void ShardedUnit::fill_without_values() {
  if (is_gathered_) return;
  pool_.fill(run_);
  if (frozen_ != nullptr) frozen_->fill();
  is_gathered_ = true;
}

bool ShardedUnit::has_new_gradients() const {
  return std::ranges::any_of(parameters_, [](const nn::ParameterInfo& parameter) {
    return parameter.tensor.grad().defined();
  });
}

// A parameter's gradient of a microbatch, which is dropped; undefined: it was not used.
at::Tensor ShardedUnit::take_gradient(nn::ParameterInfo& parameter) {
  at::Tensor gradient = std::exchange(parameter.tensor.mutable_grad(), at::Tensor());
  check<core::ConfigError>(!gradient.defined() || !gradient.is_sparse(),
                           "train.ShardedUnit: ", parameter.name,
                           ": a sparse gradient; build the embedding without `sparse`");
  return gradient;
}

void ShardedUnit::add_gradients() {
  if (parameters_.empty()) return;
  const at::NoGradGuard no_grad;
  const WatchPause pause;
  if (tree_ != nullptr) return add_to_tree();
  // Whatever a microbatch left unused on this rank may have been used on another.
  at::Tensor run_gradient;
  if (!holds_all()) {
    run_gradient = at::empty({layout_.length()}, gradient_.options());
    run_gradient.narrow(0, layout_.num_elements(), layout_.length() - layout_.num_elements())
        .zero_();
  }
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const shard::Range range = layout_.parameter(i);
    const at::Tensor gradient = take_gradient(parameters_[i]);
    at::Tensor place =
        (holds_all() ? gradient_ : run_gradient).narrow(0, range.start, range.length);
    if (!gradient.defined()) {
      if (!holds_all()) place.zero_();
      continue;
    }
    if (holds_all()) {
      place.add_(gradient.reshape({-1}));
    } else {
      place.copy_(gradient.reshape({-1}));
    }
  }
  if (!holds_all()) add_to_share(run_gradient);
}

void ShardedUnit::add_to_tree() {
  std::vector<at::Tensor> gradients;
  for (nn::ParameterInfo& parameter : parameters_) {
    const at::Tensor gradient = take_gradient(parameter);
    gradients.push_back(gradient.defined() ? gradient
                                           : at::zeros({parameter.tensor.numel()}, at::kFloat));
    gradients.back() = gradients.back().reshape({-1});
  }
  tree_->add(std::move(gradients));
}

// This comes before sums over replicas: anything added after those would lack the other replicas'
// part.
void ShardedUnit::add_to_share(const at::Tensor& run_gradient) {
  if (!has_gradient_) {
    groups_.data.reduce_scatter_into(gradient_, run_gradient);
    has_gradient_ = true;
    return;
  }
  at::Tensor sum = at::empty_like(gradient_);
  groups_.data.reduce_scatter_into(sum, run_gradient);
  gradient_.add_(sum);
}

void ShardedUnit::finish_gradients() {
  if (parameters_.empty()) return;
  if (tree_ != nullptr) return finish_tree();
  if (is_partial_) groups_.model.all_reduce(gradient_);
  if (groups_.replica.size() > 1) {
    groups_.replica.reduce_scatter_into(owned_gradient_, gradient_);
  }
  if (!parameters_.empty()) sum_over(parameters_.front().stages);
}

void ShardedUnit::finish_tree() {
  const at::NoGradGuard no_grad;
  std::vector<shard::Range> owned;
  for (int64_t rank = 0; rank < groups_.batch.size(); ++rank) {
    owned.push_back(layout_.owned(rank % layout_.data(), rank / layout_.data()));
  }
  tree_->finish(owned, owned_gradient_);
}

// Every stage adds in the same order, so that the copies stay equal bit for bit.
void ShardedUnit::sum_over(const std::vector<int64_t>& stages) {
  if (stages.empty()) return;
  const at::Tensor own = owned_gradient_.clone();
  for (const int64_t stage : stages) {
    if (stage != groups_.pipe.rank()) groups_.pipe.send(own, stage);
  }
  owned_gradient_.zero_();
  at::Tensor received = at::empty_like(own);
  for (const int64_t stage : stages) {
    const bool is_own = stage == groups_.pipe.rank();
    if (!is_own) groups_.pipe.receive(received, stage);
    owned_gradient_.add_(is_own ? own : received);
  }
}

std::vector<std::span<const float>> ShardedUnit::counted_gradients() const {
  std::vector<std::span<const float>> runs;
  const float* gradient = owned_gradient_.const_data_ptr<float>();
  for (const shard::Range& range : counted_) {
    runs.emplace_back(gradient + range.start, static_cast<size_t>(range.length));
  }
  return runs;
}

double ShardedUnit::counted_square_sum() const {
  double sum = 0;
  for (const std::span<const float> run : counted_gradients()) sum += square_sum(run);
  return sum;
}

void ShardedUnit::publish() {
  const at::NoGradGuard no_grad;
  const WatchPause pause;
  release();
  if (parameters_.empty()) return;
  if (groups_.replica.size() > 1) {
    groups_.replica.all_gather_into(share_, master_.to(dtype_, false, /*copy=*/true));
  } else if (!master_.is_alias_of(share_)) {
    share_.copy_(master_);
  }
}

void ShardedUnit::clear_gradients() {
  // Everywhere else the first sum of a step overwrites.
  if (holds_all() && tree_ == nullptr) gradient_.zero_();
  has_gradient_ = false;
}

Slice ShardedUnit::slice_of(const FlatLayout::Piece& piece) const {
  const nn::ParameterInfo& parameter = parameters_[piece.parameter];
  const std::vector<int64_t>& stages = parameter.stages;
  const bool is_copy = !stages.empty() && stages.front() != groups_.pipe.rank();
  return {parameter.name,       parameter.sizes, parameter.cut,
          groups_.model.rank(), piece.elements,  is_copy};
}

std::vector<OwnedPart> ShardedUnit::owned_parts() const {
  std::vector<OwnedPart> parts;
  for (const auto& piece :
       layout_.pieces(layout_.owned(groups_.data.rank(), groups_.replica.rank()))) {
    parts.push_back({slice_of(piece), master_.narrow(0, piece.offset, piece.elements.length),
                     owned_gradient_.narrow(0, piece.offset, piece.elements.length)});
  }
  return parts;
}

uint64_t ShardedUnit::master_bytes() const {
  return master_.is_alias_of(share_) ? 0 : master_.nbytes();
}

}  // namespace weft::train
