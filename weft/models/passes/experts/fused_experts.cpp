#include "weft/models/passes/experts/fused_experts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "weft/core/profile.h"
#include "weft/nn/kernels/select.h"
#include "weft/nn/linear/dense_linear.h"
#include "weft/quant/kernels/panel_select.h"

// D width. A row is one token of one sequence.

namespace weft::models {
namespace {

using Linear = std::shared_ptr<nn::PanelLinearImpl>;
using Linears = FeedForwardLinears<nn::PanelLinearImpl>;

const nn::kernels::ElementKernel& float_elements() { return nn::kernels::active_kernel().float32; }

const float* data_of(const at::Tensor& bias) {
  return bias.defined() ? bias.const_data_ptr<float>() : nullptr;
}

void add_bias(const float* bias, float* row, int64_t size) {
  if (bias != nullptr) float_elements().add(row, bias, row, size);
}

quant::PanelView view_of(const Linear& linear) { return quant::PanelView(linear->weight); }

quant::PanelInputs::Wants wants_of(const Linear& linear) {
  return quant::PanelInputs::Wants::of(linear->weight);
}

// A router, or the gate of a shared expert, which may be held as plain numbers; or null.
Linear take_router(const nn::PartialLinear& holder, bool is_exact, HeldLinears& held) {
  constexpr int64_t kActivationBits = 16;
  if (auto panels = held.take_partial<nn::PanelLinearImpl>(holder)) return panels;
  const auto inner = holder->inner();
  if (std::dynamic_pointer_cast<nn::DenseLinearImpl>(inner) == nullptr) return nullptr;
  return std::dynamic_pointer_cast<nn::PanelLinearImpl>(
      nn::in_panels(*inner, {kActivationBits, is_exact}));
}

// Adds what the pass reads of an expert to `layer`.
bool add_expert(const Linears& linears, FusedExperts::Layer& layer, FusedExperts::Expert& expert) {
  for (const Linear& each : {linears.gate, linears.up, linears.down}) {
    if (each == nullptr) return false;
    layer.linears.push_back(each);
  }
  layer.first = layer.first | wants_of(linears.gate) | wants_of(linears.up);
  layer.second = layer.second | wants_of(linears.down);
  expert = {view_of(linears.gate),
            view_of(linears.up),
            view_of(linears.down),
            linears.gate->out_features(),
            data_of(linears.gate->bias),
            data_of(linears.up->bias),
            nullptr};
  return true;
}

// The bias that this rank adds to the sum of all, if it does. Ordered sums are whole before.
void take_down_bias(const nn::Expert& module, FusedExperts::Layer& layer,
                    FusedExperts::Expert& expert) {
  const nn::PartialLinear& down = module->down();
  const bool is_whole = layer.ordered.experts != nullptr;
  if (!down->bias.defined() || !(is_whole || down->adds_bias())) return;
  layer.biases.push_back(down->bias.detach().to(at::kFloat).contiguous());
  expert.down_bias = data_of(layer.biases.back());
}

bool add_router(const nn::PartialLinear& holder, HeldLinears& held, FusedExperts::Layer& layer,
                quant::PanelView& view) {
  const Linear linear = take_router(holder, layer.ordered.experts != nullptr, held);
  if (linear == nullptr) return false;
  layer.linears.push_back(linear);
  layer.first = layer.first | wants_of(linear);
  view = view_of(linear);
  return true;
}

bool add_shared(const nn::MixtureOfExperts& mixture, HeldLinears& held,
                FusedExperts::Layer& layer) {
  if (mixture->shared().is_empty()) return true;
  const Linears linears = held.take_expert<nn::PanelLinearImpl>(mixture->shared());
  layer.shared = FusedExperts::Expert();
  if (!add_expert(linears, layer, *layer.shared)) return false;
  take_down_bias(mixture->shared(), layer, *layer.shared);
  if (mixture->shared_gate().is_empty()) return true;
  return add_router(mixture->shared_gate(), held, layer, layer.shared_gate.emplace());
}

// Of each held expert, its piece of the sum over experts.
std::vector<int64_t> pieces_of_experts(const shard::SumPlan& plan) {
  std::vector<int64_t> pieces;
  for (size_t i = 0; i < plan.pieces.size(); ++i) {
    pieces.insert(pieces.end(), static_cast<size_t>(plan.pieces[i].length),
                  static_cast<int64_t>(i));
  }
  return pieces;
}

// sum += weight * y; the restricted pointers let the loop take vectors.
void add_weighted(float weight, const float* __restrict y, float* __restrict sum, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sum[i] += weight * y[i];
}

}  // namespace

std::optional<FusedExperts::Layer> FusedExperts::take(const nn::MixtureOfExperts& mixture,
                                                      HeldLinears& held) {
  Layer layer;
  layer.routing = mixture->options();
  layer.ordered = mixture->ordered();
  if (layer.ordered.experts) layer.pieces = pieces_of_experts(layer.ordered.experts->plan());
  if (mixture->choice_bias().defined()) {
    layer.biases.push_back(mixture->choice_bias().to(at::kFloat).contiguous());
    layer.choice_bias = data_of(layer.biases.back());
  }
  if (mixture->expert_factors().defined()) {
    layer.biases.push_back(mixture->expert_factors().to(at::kFloat).contiguous());
    layer.expert_factors = data_of(layer.biases.back());
  }
  layer.places.assign(static_cast<size_t>(mixture->num_experts()), -1);
  if (!add_router(mixture->router(), held, layer, layer.router)) return std::nullopt;
  layer.router_bias = data_of(layer.linears.back()->bias);
  layer.gating = mixture->experts().front()->gating();
  for (const nn::Expert& expert : mixture->experts()) {
    const auto number = static_cast<size_t>(mixture->expert_numbers()[layer.experts.size()]);
    layer.places[number] = static_cast<int64_t>(layer.experts.size());
    const Linears linears = held.take_expert<nn::PanelLinearImpl>(expert);
    if (!add_expert(linears, layer, layer.experts.emplace_back())) return std::nullopt;
    take_down_bias(expert, layer, layer.experts.back());
    if (layer.experts.back().ffn != layer.experts.front().ffn) return std::nullopt;
    layer.chosen = layer.chosen | wants_of(linears.gate) | wants_of(linears.up);
  }
  if (!add_shared(mixture, held, layer)) return std::nullopt;
  return layer;
}

void FusedExperts::add_wants(const Layer& layer) {
  inputs_.add_wants(layer.first);
  if (layer.routes_apart) router_inputs_.add_wants(layer.first);
  chosen_.add_wants(layer.chosen);
  hidden_.add_wants(layer.second);
}

void FusedExperts::run(const Layer& layer, int64_t tokens, float* sum) {
  route(layer);
  if (layer.shared) run_shared(layer, *layer.shared, tokens, sum);
  run_chosen(layer, tokens);
  add_up(layer, sum);
}

void FusedExperts::route(const Layer& layer) {
  const core::Profiled profiled("router");
  const int64_t rows = inputs_.num_rows();
  const auto product = [&](const quant::PanelView& w, FloatRows& to) {
    return quant::PanelProduct{w, to.of(rows, w.padded_out()), w.padded_out()};
  };
  products_.assign(1, product(layer.router, logits_));
  if (layer.shared_gate) products_.push_back(product(*layer.shared_gate, shared_gates_));
  quant::multiply(quant::kernels::active_panel_kernel(),
                  layer.routes_apart ? router_inputs_ : inputs_, products_);
  const auto num_experts = static_cast<int64_t>(layer.places.size());
  for (int64_t row = 0; row < rows; ++row)
    add_bias(layer.router_bias, logits_.row(row), num_experts);
  ExpertRouting::Options options;
  options.num_experts = num_experts;
  options.top_k = layer.routing.top_k;
  options.normalizes = layer.routing.normalize;
  options.has_sigmoids = layer.routing.has_sigmoids;
  options.num_groups = layer.routing.num_groups;
  options.groups_per_token = layer.routing.groups_per_token;
  options.best_of_group = layer.routing.best_of_group;
  options.scale = static_cast<float>(layer.routing.scale);
  options.choice_bias = layer.choice_bias;
  options.expert_factors = layer.expert_factors;
  options.places = layer.places;
  routing_.route(logits_, rows, options);
}

// What the shared expert's last product is of.
void FusedExperts::take_shared_hidden(const Layer& layer, const Expert& shared, int64_t tokens) {
  const auto& kernel = quant::kernels::active_panel_kernel();
  const int64_t rows = inputs_.num_rows(), stride = shared.gate.padded_out();
  quant::multiply(kernel, inputs_,
                  std::array{quant::PanelProduct{shared.gate, gate_.of(rows, stride), stride},
                             quant::PanelProduct{shared.up, up_.of(rows, stride), stride}});
  take_hidden(layer, shared, tokens);
}

void FusedExperts::run_shared(const Layer& layer, const Expert& shared, int64_t tokens,
                              float* sum) {
  const core::Profiled profiled("shared expert");
  const int64_t rows = inputs_.num_rows();
  take_shared_hidden(layer, shared, tokens);
  quant::multiply(quant::kernels::active_panel_kernel(), hidden_,
                  std::array{quant::PanelProduct{shared.down, sum, width()}});
  for (int64_t row = 0; row < rows; ++row) add_bias(shared.down_bias, sum + row * width(), width());
}

// What the chosen experts' last products are of: each expert's rows are a group.
void FusedExperts::take_chosen(const Layer& layer, int64_t tokens) {
  const auto& kernel = quant::kernels::active_panel_kernel();
  chosen_.take_rows(kernel, inputs_, routing_.rows(), routing_.starts());
  products_.clear();
  add_products(layer, &Expert::gate, gate_);
  add_products(layer, &Expert::up, up_);
  quant::multiply(kernel, chosen_, products_);
  take_chosen_hidden(layer, tokens);
}

// On one rank of several there may be no rows.
void FusedExperts::run_chosen(const Layer& layer, int64_t tokens) {
  const core::Profiled profiled("experts");
  if (routing_.rows().empty()) return;
  take_chosen(layer, tokens);
  products_.clear();
  add_products(layer, &Expert::down, out_);
  quant::multiply(quant::kernels::active_panel_kernel(), hidden_, products_);
}

// What the expert makes of all rows of gate_ and up_.
void FusedExperts::take_hidden(const Layer& layer, const Expert& expert, int64_t tokens) {
  hidden_.take(quant::kernels::active_panel_kernel(), {inputs_.num_rows(), expert.ffn, tokens},
               [&](int64_t row, float* room) {
                 add_bias(expert.gate_bias, gate_.row(row), expert.ffn);
                 add_bias(expert.up_bias, up_.row(row), expert.ffn);
                 gate_row(layer.gating, gate_.row(row), up_.row(row), room, expert.ffn);
                 return room;
               });
}

// The same of the chosen experts' rows.
void FusedExperts::take_chosen_hidden(const Layer& layer, int64_t tokens) {
  const auto starts = routing_.starts();
  const int64_t ffn = layer.experts.front().ffn;
  const auto rows = static_cast<int64_t>(routing_.rows().size());
  hidden_.take(quant::kernels::active_panel_kernel(), {rows, ffn, tokens, 0, starts},
               [&](int64_t row, float* room) {
                 const Expert& expert = layer.experts[routing_.active_of(row)];
                 add_bias(expert.gate_bias, gate_.row(row), ffn);
                 add_bias(expert.up_bias, up_.row(row), ffn);
                 gate_row(layer.gating, gate_.row(row), up_.row(row), room, ffn);
                 return room;
               });
}

// One of an expert's matrices for all experts that rows take, to `to`.
void FusedExperts::add_products(const Layer& layer, quant::PanelView Expert::*part, FloatRows& to) {
  const int64_t stride = (layer.experts.front().*part).padded_out();
  to.of(static_cast<int64_t>(routing_.rows().size()), stride);
  for (size_t i = 0; i < routing_.active().size(); ++i) {
    const Expert& expert = layer.experts[static_cast<size_t>(routing_.active()[i])];
    products_.push_back(
        {expert.*part, to.row(routing_.starts()[i]), stride, static_cast<int64_t>(i)});
  }
}

// sum += weight * expert, of a place in the routing's rows.
void FusedExperts::add_chosen(const Layer& layer, int64_t slot, float weight, float* sum) const {
  add_weighted(weight, out_.row(slot), sum, width());
  const float* bias = layer.experts[routing_.active_of(slot)].down_bias;
  if (bias != nullptr) add_weighted(weight, bias, sum, width());
}

void FusedExperts::scale_shared(const Layer& layer, int64_t row, float* shared) const {
  if (!layer.shared_gate) return;
  const float scale = 1 / (1 + std::exp(-*shared_gates_.row(row)));
  std::transform(shared, shared + width(), shared, [&](float y) { return scale * y; });
}

// Experts in ascending order, so that a row's sum is the same in any pass.
void FusedExperts::add_up(const Layer& layer, float* sum) const {
  const core::Profiled profiled("sum of experts");
  for_rows(inputs_.num_rows(), (layer.routing.top_k + 1) * width(), [&](int64_t row) {
    float* const own = sum + row * width();
    if (!layer.shared) std::fill_n(own, width(), 0.F);
    scale_shared(layer, row, own);
    routing_.for_each_of(row,
                         [&](int64_t slot, float weight) { add_chosen(layer, slot, weight, own); });
  });
}

}  // namespace weft::models
