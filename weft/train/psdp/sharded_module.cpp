#include "weft/train/psdp/sharded_module.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <sstream>
#include <unordered_map>
#include <utility>

#include "weft/core/error.h"
#include "weft/train/exact/norm_over_ranks.h"
#include "weft/train/gather_texts.h"

namespace weft::train {
namespace {

using core::check;
using core::ConfigError;
using Modules = std::vector<std::shared_ptr<torch::nn::Module>>;

// Which of `units` each tensor belongs to.
std::unordered_map<const c10::TensorImpl*, size_t> owners(const Modules& units) {
  std::unordered_map<const c10::TensorImpl*, size_t> owner;
  for (size_t i = 0; i < units.size(); ++i) {
    for (const auto& item : units[i]->named_parameters()) {
      const auto [known, is_new] = owner.emplace(item.value().unsafeGetTensorImpl(), i);
      check<ConfigError>(is_new || known->second == i || !item.value().requires_grad(),
                         "train.shard_module: units ", known->second, " and ", i, " share ",
                         item.key(), "; make them one unit");
    }
  }
  return owner;
}

// What several units have is gathered with the first.
std::unordered_map<const c10::TensorImpl*, size_t> frozen_owners(const Modules& units) {
  std::unordered_map<const c10::TensorImpl*, size_t> owner;
  for (size_t i = 0; i < units.size(); ++i) {
    for (const at::Tensor& tensor : frozen_tensors(*units[i])) {
      owner.emplace(tensor.unsafeGetTensorImpl(), i);
    }
  }
  return owner;
}

void mark_partial(std::vector<nn::ParameterInfo>& parameters,
                  const std::vector<std::string>& partial) {
  for (const std::string& name : partial) {
    const auto found = std::ranges::find(parameters, name, &nn::ParameterInfo::name);
    check<ConfigError>(found != parameters.end(),
                       "train.shard_module: partial_gradients: no "
                       "trainable parameter ",
                       core::quote(name));
    found->gradient = nn::GradientKind::kPartial;
  }
}

// By a parameter's name the ranks of a group that have it, ascending.
using Holders = std::map<std::string, std::vector<int64_t>>;

// Collective over `group`.
Holders find_holders(const std::vector<std::string>& names, const dist::Group& group) {
  std::string lines;
  for (const std::string& name : names) lines += name + '\n';
  Holders holders;
  const std::vector<std::string> all = gather_texts(group, lines);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    std::istringstream stream(all[rank]);
    for (std::string name; std::getline(stream, name);) {
      holders[name].push_back(static_cast<int64_t>(rank));
    }
  }
  return holders;
}

}  // namespace

struct ShardedModule::Found {
  std::string name;
  std::vector<nn::ParameterInfo> parameters;
  bool stays_gathered = false;
  std::vector<at::Tensor> frozen = {};
};

// Finds the given units and what is left around them. Parameters whose gradients are summed
// over the model axis become units of their own, so that all ranks of that axis cut them the same
// way.
std::vector<ShardedModule::Found> ShardedModule::find_units(torch::nn::Module& module,
                                                            const Modules& units,
                                                            const ShardOptions& options) const {
  auto parameters = nn::describe_parameters(module, options.inplace);
  check<ConfigError>(!parameters.empty(),
                     "train.shard_module: the module has no parameter that "
                     "needs a gradient");
  mark_partial(parameters, options.partial_gradients);
  const auto owner = owners(units);
  std::vector<Found> found(units.size() + 2);
  for (size_t i = 0; i < units.size(); ++i) found[i].name = core::join("unit ", i);
  found[units.size()] = {"root", {}, true};
  found[units.size() + 1] = {"partial sums", {}, true};
  for (nn::ParameterInfo& parameter : parameters) {
    const auto known = owner.find(parameter.tensor.unsafeGetTensorImpl());
    size_t place = known == owner.end() ? units.size() : known->second;
    if (parameter.gradient == nn::GradientKind::kPartial) place = units.size() + 1;
    found[place].parameters.push_back(std::move(parameter));
  }
  if (groups_.pipe.size() > 1) take_out_shared(found);
  if (options.shard_frozen && groups_.data.size() > 1) {
    const auto places = frozen_owners(units);
    for (const at::Tensor& tensor : frozen_tensors(module)) {
      const auto known = places.find(tensor.unsafeGetTensorImpl());
      found[known == places.end() ? units.size() : known->second].frozen.push_back(tensor);
    }
  }
  std::erase_if(found,
                [](const Found& each) { return each.parameters.empty() && each.frozen.empty(); });
  return found;
}

// A parameter that several stages hold becomes a unit of its own, so that they cut it the same way.
void ShardedModule::take_out_shared(std::vector<Found>& found) const {
  std::vector<std::string> names;
  for (const Found& each : found) {
    for (const nn::ParameterInfo& parameter : each.parameters) names.push_back(parameter.name);
  }
  const Holders holders = find_holders(names, groups_.pipe);
  std::vector<Found> shared;
  for (Found& each : found) {
    std::erase_if(each.parameters, [&](const nn::ParameterInfo& parameter) {
      const std::vector<int64_t>& stages = holders.at(parameter.name);
      if (stages.size() < 2) return false;
      Found& alone = shared.emplace_back();
      alone.name = core::join("shared ", parameter.name);
      alone.parameters.push_back(parameter);
      alone.parameters.back().stages = stages;
      alone.stays_gathered = true;
      return true;
    });
  }
  // One order on all stages.
  std::ranges::sort(shared, {}, &Found::name);
  std::ranges::move(shared, std::back_inserter(found));
}

void ShardedModule::check_same_on_all_ranks(const std::vector<Found>& found,
                                            const ShardOptions& options) const {
  std::vector<std::string> lines = {core::join(
      "options dtype ", options.dtype, ", release_after_forward ", options.release_after_forward,
      ", prefetch ", options.prefetch, ", exact_sequences ", options.exact_sequences,
      ", exact_together ", options.exact_together)};
  for (const Found& unit : found) {
    for (const nn::ParameterInfo& parameter : unit.parameters) {
      lines.push_back(
          core::join(unit.name, " with ", parameter.name, ' ', parameter.tensor.sizes()));
    }
    for (const at::Tensor& frozen : unit.frozen) {
      lines.push_back(core::join(unit.name, " with a frozen tensor ", frozen.sizes()));
    }
  }
  check_same_units(groups_.batch, lines);
}

ShardedModule::ShardedModule(torch::nn::Module& module, const dist::Mesh& mesh,
                             const Modules& units, const ShardOptions& options)
    : groups_(mesh_groups(mesh)),
      release_after_forward_(options.release_after_forward),
      prefetches_(options.prefetch) {
  if (options.exact_sequences > 0) {
    exact_groups_ = sequence_plan(options.exact_sequences, groups_.batch.size(),
                                  groups_.batch.rank(), options.exact_together)
                        .groups;
  }
  std::vector<Found> all_found = find_units(module, units, options);
  check_same_on_all_ranks(all_found, options);
  for (Found& found : all_found) {
    stays_gathered_.push_back(found.stays_gathered);
    units_.push_back(std::make_unique<ShardedUnit>(
        std::move(found.name), std::move(found.parameters), groups_, options, pool_, found.frozen));
  }
  is_added_.assign(units_.size(), false);
  for (size_t i = 0; i < units_.size(); ++i) watch(i);
}

void ShardedModule::watch(size_t unit) {
  const auto add = [&](const at::Tensor& run) {
    watches_.push_back(std::make_unique<StorageWatch>(run.storage().unsafeGetStorageImpl(),
                                                      [this, unit] { before_use(unit); }));
  };
  add(units_[unit]->run());
  if (units_[unit]->frozen() != nullptr) add(units_[unit]->frozen()->run());
}

void ShardedModule::before_use(size_t unit) noexcept {
  const bool is_used = units_[unit]->is_gathered() && (stays_gathered_[unit] || current_ == unit);
  if (is_used) return;
  try {
    if (!error_) use(unit);
  } catch (...) {
    // The operation can't be stopped here; it runs on arbitrary values, and the error is thrown at
    // the next call.
    error_ = std::current_exception();
  }
  if (error_) units_[unit]->fill_without_values();
}

// Gathers `unit`, if there is one, together with the other data ranks, whatever they are about to
// use, and leaves the unit before it.
void ShardedModule::use(std::optional<size_t> unit) {
  const bool moves_on = unit.has_value() && !stays_gathered_[*unit] && current_ != unit;
  const std::optional<size_t> left = moves_on ? leave_current() : std::nullopt;
  if (moves_on) current_ = unit;
  const std::optional<size_t> next = likely_after(unit);
  const auto number = [](std::optional<size_t> each) {
    return each.has_value() ? static_cast<int64_t>(*each) : UnitRequest::kNone;
  };
  const auto lacks = [&](std::optional<size_t> each) {
    return each.has_value() && !units_[*each]->is_gathered();
  };
  const UnitRequest request{
      UnitRequest::Kind::kUse, in_backward_, number(unit), number(left), lacks(unit), lacks(next)};
  const UnitRound round = exchange_requests(groups_.data, request);
  if (!round.is_agreed) return gather_for_all(round, unit);
  // A tree takes whole gradients of a backward, of which a branch beside this one may bring more.
  if (left.has_value() && exact_groups_.empty()) {
    units_[*left]->add_gradients();
    is_added_[*left] = true;
  }
  if (unit.has_value() && round.lacks_unit) units_[*unit]->begin_gather_anew();
  if (unit.has_value()) units_[*unit]->gather();
  if (next.has_value() && round.lacks_next) units_[*next]->begin_gather_anew();
}

// A unit's backward is over when the next unit's begins: what it had to do was ready before.
std::optional<size_t> ShardedModule::leave_current() {
  const std::optional<size_t> left = std::exchange(current_, std::nullopt);
  if (left.has_value() && (in_backward_ || release_after_forward_)) units_[*left]->release();
  return in_backward_ ? left : std::nullopt;
}

// The unit that is used next if the module uses them in order; otherwise it is gathered for
// nothing.
std::optional<size_t> ShardedModule::likely_after(std::optional<size_t> unit) const {
  if (!prefetches_ || !unit.has_value() || stays_gathered_[*unit]) return std::nullopt;
  if (in_backward_ && *unit == 0) return std::nullopt;
  const size_t next = in_backward_ ? *unit - 1 : *unit + 1;
  if (next >= units_.size() || stays_gathered_[next]) return std::nullopt;
  return next;
}

// Ranks need different units; this rank needs `own`. All take part in the gather of each,
// and keep what they need now or are likely to need next. Gradients wait for the backward's end.
void ShardedModule::gather_for_all(const UnitRound& round, std::optional<size_t> own) {
  for (const int64_t number : round.units_to_gather()) {
    const auto each = static_cast<size_t>(number);
    const bool keeps = units_[each]->is_gathered() || stays_gathered_[each] || own == each ||
                       likely_after(own) == each;
    units_[each]->begin_gather_anew();
    units_[each]->gather();
    if (!keeps) units_[each]->release();
  }
  if (own.has_value()) units_[*own]->gather();
}

// Serves the data ranks that still compute until all have come to the same end.
void ShardedModule::end_together(UnitRequest::Kind kind) {
  rethrow_error();
  for (;;) {
    const UnitRound round = exchange_requests(groups_.data, {kind});
    if (round.is_agreed) return;
    gather_for_all(round, std::nullopt);
  }
}

void ShardedModule::backward(const at::Tensor& loss, const at::Tensor& gradient) {
  rethrow_error();
  is_added_.assign(units_.size(), false);
  in_backward_ = true;
  try {
    // Forward has left its last unit as it was; the one before it is asked for now.
    if (prefetches_) use(current_);
    loss.backward(gradient);
    leave_current();
    end_together(UnitRequest::Kind::kEndBackward);
  } catch (...) {
    in_backward_ = false;
    rethrow_error();
    throw;
  }
  add_remaining_gradients();
  in_backward_ = false;
}

// In one order on all ranks, whether a rank's sequences used the unit or not.
void ShardedModule::add_remaining_gradients() {
  for (size_t i = 0; i < units_.size(); ++i) {
    if (!is_added_[i]) units_[i]->add_gradients();
    if (!stays_gathered_[i]) units_[i]->release();
  }
}

// Gradients that came after their unit was left, in branches that ran beside each other; not
// necessarily on all ranks.
void ShardedModule::add_late_gradients() {
  at::Tensor late = at::zeros({static_cast<int64_t>(units_.size())}, at::kInt);
  for (size_t i = 0; i < units_.size(); ++i) {
    if (units_[i]->has_new_gradients()) late[static_cast<int64_t>(i)] = 1;
  }
  groups_.data.all_reduce(late, dist::ReduceOp::kMax);
  for (size_t i = 0; i < units_.size(); ++i) {
    if (late[static_cast<int64_t>(i)].item<int>() != 0) units_[i]->add_gradients();
  }
}

void ShardedModule::finish_gradients() {
  end_together(UnitRequest::Kind::kFinishGradients);
  add_late_gradients();
  for (const auto& unit : units_) unit->finish_gradients();
}

double ShardedModule::gradient_norm() const {
  if (!exact_groups_.empty()) {
    std::vector<std::span<const float>> runs;
    for (const auto& unit : units_)
      std::ranges::copy(unit->counted_gradients(), std::back_inserter(runs));
    return exact_norm(runs, groups_.all);
  }
  double sum = 0;
  for (const auto& unit : units_) sum += unit->counted_square_sum();
  at::Tensor total = at::full({1}, sum, at::kDouble);
  groups_.all.all_reduce(total);
  return std::sqrt(total.item<double>());
}

void ShardedModule::publish() {
  end_together(UnitRequest::Kind::kPublish);
  release_all();
  for (const auto& unit : units_) {
    unit->publish();
    unit->clear_gradients();
  }
}

void ShardedModule::release() {
  end_together(UnitRequest::Kind::kRelease);
  release_all();
}

void ShardedModule::release_all() {
  current_.reset();
  for (const auto& unit : units_) unit->release();
}

std::vector<OwnedPart> ShardedModule::owned_parts() const {
  std::vector<OwnedPart> parts;
  for (const auto& unit : units_) {
    for (OwnedPart& part : unit->owned_parts()) parts.push_back(std::move(part));
  }
  return parts;
}

void ShardedModule::rethrow_error() {
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

std::unique_ptr<ShardedModule> shard_module(torch::nn::Module& module, const dist::Mesh& mesh,
                                            const Modules& units, const ShardOptions& options) {
  return std::make_unique<ShardedModule>(module, mesh, units, options);
}

}  // namespace weft::train
