#include "weft/models/passes/fused_experts.h"

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

quant::PanelView view_of(const Linear& linear) { return quant::PanelView(linear->weight); }

quant::PanelInputs::Wants wants_of(const Linear& linear) {
  return quant::PanelInputs::Wants::of(linear->weight);
}

bool is_usable(const Linear& linear) { return linear != nullptr && !linear->has_bias(); }

// A router, or the gate of a shared expert, which may be held as plain numbers; or null.
Linear take_router(const nn::PartialLinear& holder, HeldLinears& held) {
  constexpr int64_t kActivationBits = 16;
  if (auto panels = held.take_partial<nn::PanelLinearImpl>(holder)) return panels;
  const auto inner = holder->inner();
  if (std::dynamic_pointer_cast<nn::DenseLinearImpl>(inner) == nullptr) return nullptr;
  return std::dynamic_pointer_cast<nn::PanelLinearImpl>(nn::in_panels(*inner, kActivationBits));
}

// Adds what the pass reads of an expert to `layer`.
bool add_expert(const Linears& linears, FusedExperts::Layer& layer, FusedExperts::Expert& expert) {
  for (const Linear& each : {linears.gate, linears.up, linears.down}) {
    if (!is_usable(each)) return false;
    layer.linears.push_back(each);
  }
  layer.first = layer.first | wants_of(linears.gate) | wants_of(linears.up);
  layer.second = layer.second | wants_of(linears.down);
  expert = {view_of(linears.gate), view_of(linears.up), view_of(linears.down),
            linears.gate->out_features()};
  return true;
}

bool add_router(const nn::PartialLinear& holder, HeldLinears& held, FusedExperts::Layer& layer,
                quant::PanelView& view) {
  const Linear linear = take_router(holder, held);
  if (!is_usable(linear)) return false;
  layer.linears.push_back(linear);
  layer.first = layer.first | wants_of(linear);
  view = view_of(linear);
  return true;
}

bool add_shared(const nn::MixtureOfExperts& mixture, HeldLinears& held,
                FusedExperts::Layer& layer) {
  if (mixture->shared().is_empty()) return true;
  const Linears linears = held.take_expert<nn::PanelLinearImpl>(mixture->shared());
  if (!add_expert(linears, layer, layer.shared.emplace())) return false;
  if (mixture->shared_gate().is_empty()) return true;
  return add_router(mixture->shared_gate(), held, layer, layer.shared_gate.emplace());
}

// sum += weight * y; the restricted pointers let the loop take vectors.
void add_weighted(float weight, const float* __restrict y, float* __restrict sum, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sum[i] += weight * y[i];
}

}  // namespace

std::optional<FusedExperts::Layer> FusedExperts::take(const nn::MixtureOfExperts& mixture,
                                                      HeldLinears& held) {
  Layer layer;
  layer.top_k = mixture->options().top_k;
  layer.normalizes = mixture->options().normalize;
  layer.places.assign(static_cast<size_t>(mixture->num_experts()), -1);
  if (!add_router(mixture->router(), held, layer, layer.router)) return std::nullopt;
  for (const nn::Expert& expert : mixture->experts()) {
    const auto number = static_cast<size_t>(mixture->expert_numbers()[layer.experts.size()]);
    layer.places[number] = static_cast<int64_t>(layer.experts.size());
    const Linears linears = held.take_expert<nn::PanelLinearImpl>(expert);
    if (!add_expert(linears, layer, layer.experts.emplace_back())) return std::nullopt;
    if (layer.experts.back().ffn != layer.experts.front().ffn) return std::nullopt;
    layer.chosen = layer.chosen | wants_of(linears.gate) | wants_of(linears.up);
  }
  if (!add_shared(mixture, held, layer)) return std::nullopt;
  return layer;
}

void FusedExperts::add_wants(const Layer& layer) {
  inputs_.add_wants(layer.first);
  chosen_.add_wants(layer.chosen);
  hidden_.add_wants(layer.second);
}

void FusedExperts::run(const Layer& layer, int64_t tokens, float* sum) {
  route(layer);
  if (layer.shared) run_shared(*layer.shared, tokens, sum);
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
  quant::multiply(quant::kernels::active_panel_kernel(), inputs_, products_);
  const auto num_experts = static_cast<int64_t>(layer.places.size());
  routing_.route(logits_, rows, {num_experts, layer.top_k, layer.normalizes, layer.places});
}

void FusedExperts::run_shared(const Expert& shared, int64_t tokens, float* sum) {
  const core::Profiled profiled("shared expert");
  const auto& kernel = quant::kernels::active_panel_kernel();
  const int64_t rows = inputs_.num_rows(), stride = shared.gate.padded_out();
  quant::multiply(kernel, inputs_,
                  std::array{quant::PanelProduct{shared.gate, gate_.of(rows, stride), stride},
                             quant::PanelProduct{shared.up, up_.of(rows, stride), stride}});
  take_hidden(shared.ffn, tokens, {});
  quant::multiply(kernel, hidden_, std::array{quant::PanelProduct{shared.down, sum, width()}});
}

// Each expert's rows are a group. On one rank of several there may be none.
void FusedExperts::run_chosen(const Layer& layer, int64_t tokens) {
  const core::Profiled profiled("experts");
  if (routing_.rows().empty()) return;
  const auto& kernel = quant::kernels::active_panel_kernel();
  chosen_.take_rows(kernel, inputs_, routing_.rows(), routing_.starts());
  products_.clear();
  add_products(layer, &Expert::gate, gate_);
  add_products(layer, &Expert::up, up_);
  quant::multiply(kernel, chosen_, products_);
  take_hidden(layer.experts.front().ffn, tokens, routing_.starts());
  products_.clear();
  add_products(layer, &Expert::down, out_);
  quant::multiply(kernel, hidden_, products_);
}

// silu(gate) * up of all that gate_ and up_ have.
void FusedExperts::take_hidden(int64_t ffn, int64_t tokens, std::span<const int64_t> starts) {
  const int64_t rows =
      starts.empty() ? inputs_.num_rows() : static_cast<int64_t>(routing_.rows().size());
  hidden_.take(quant::kernels::active_panel_kernel(), {rows, ffn, tokens, 0, starts},
               [&](int64_t row, float* room) {
                 float_elements().swiglu(gate_.row(row), up_.row(row), room, ffn);
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

// Experts in ascending order, so that a row's sum is the same in any pass.
void FusedExperts::add_up(const Layer& layer, float* sum) const {
  const core::Profiled profiled("sum of experts");
  for_rows(inputs_.num_rows(), (layer.top_k + 1) * width(), [&](int64_t row) {
    float* const own = sum + row * width();
    if (!layer.shared) std::fill_n(own, width(), 0.F);
    if (layer.shared_gate) {
      const float scale = 1 / (1 + std::exp(-*shared_gates_.row(row)));
      std::transform(own, own + width(), own, [&](float y) { return scale * y; });
    }
    routing_.for_each_of(row, [&](int64_t slot, float weight) {
      add_weighted(weight, out_.row(slot), own, width());
    });
  });
}

}  // namespace weft::models
