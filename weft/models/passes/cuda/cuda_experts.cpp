#include "weft/models/passes/cuda/cuda_experts.h"

#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "weft/cuda/kernels/multiply.h"
#include "weft/cuda/kernels/rows.h"
#include "weft/nn/linear/dense_linear.h"

// D width. A row is one token of one sequence.

namespace weft::models {
namespace {

using LinearOnCuda = CudaExperts::Linear;
using ExpertLinears = FeedForwardLinears<nn::CudaLinearImpl>;

constexpr int64_t kFloatBytes = sizeof(float), kIntBytes = sizeof(int32_t);

// A router, or the gate of a shared expert, which may be held as plain numbers; or null.
LinearOnCuda router_on_cuda(const nn::PartialLinear& holder, HeldLinears& held) {
  if (auto on_gpu = held.take_partial<nn::CudaLinearImpl>(holder)) return on_gpu;
  const auto inner = holder->inner();
  if (std::dynamic_pointer_cast<nn::DenseLinearImpl>(inner) == nullptr) return nullptr;
  return std::dynamic_pointer_cast<nn::CudaLinearImpl>(nn::on_cuda(*inner));
}

// Rows that an expert has on average up to which it pays to read its weights once for each
// kFewTileRows of them.
constexpr int64_t kFewOfExpert = 4;

// A single row needs no grouping.
int32_t tile_rows_for(const CudaExperts::Layer& layer, int64_t rows) {
  const bool are_few =
      rows <= cuda::kFewRows || rows * layer.routing.top_k <= kFewOfExpert * layer.num_experts;
  if (!are_few || !layer.can_take_few_rows) return cuda::kTileRows;
  return rows == 1 ? 1 : cuda::kFewTileRows;
}

bool is_on_cuda(const ExpertLinears& linears) {
  return linears.gate != nullptr && linears.up != nullptr && linears.down != nullptr;
}

// Undefined if another rank adds it.
at::Tensor own_down_bias(const nn::Expert& expert) {
  const nn::PartialLinear& down = expert->down();
  return down->bias.defined() && down->adds_bias() ? down->bias : at::Tensor();
}

// The biases of all experts side by side; those of an expert without are zeros.
cuda::Buffer biases_on_cuda(const std::vector<at::Tensor>& biases, int64_t width) {
  if (std::ranges::none_of(biases, &at::Tensor::defined)) return {};
  std::vector<at::Tensor> all;
  for (const at::Tensor& bias : biases) {
    all.push_back(bias.defined() ? bias.detach().to(at::kFloat) : at::zeros({width}, at::kFloat));
  }
  return floats_on_cuda(at::stack(all));
}

// One of an expert's matrices of all experts.
std::vector<LinearOnCuda> parts_of(const std::vector<ExpertLinears>& experts,
                                   LinearOnCuda ExpertLinears::*part) {
  std::vector<LinearOnCuda> parts;
  for (const ExpertLinears& expert : experts) parts.push_back(expert.*part);
  return parts;
}

bool are_alike(const cuda::MatrixView& a, const cuda::MatrixView& b) {
  return a.bits == b.bits && a.numbers == b.numbers && a.units_per_group == b.units_per_group &&
         a.scale_numbers == b.scale_numbers;
}

// Puts views of the matrices into the GPU's memory. False if they are not of one shape.
bool put_views(const std::vector<LinearOnCuda>& linears, cuda::Buffer& views,
               cuda::ExpertMatrices& matrices) {
  std::vector<cuda::MatrixView> all;
  matrices.form = linears.front()->weight.view();
  for (const LinearOnCuda& linear : linears) {
    const cuda::MatrixView& view = all.emplace_back(linear->weight.view());
    if (view.out != matrices.form.out || view.in != matrices.form.in) return false;
    matrices.are_alike &= are_alike(view, matrices.form);
  }
  views = cuda::Buffer::of(std::span<const cuda::MatrixView>(all));
  matrices.all = views.as<const cuda::MatrixView>();
  return true;
}

bool add_experts_on_cuda(const nn::MixtureOfExperts& mixture, HeldLinears& held,
                         CudaExperts::Layer& layer) {
  std::vector<ExpertLinears> experts;
  std::vector<at::Tensor> gate_biases, up_biases, down_biases;
  std::vector<int64_t> places(static_cast<size_t>(mixture->num_experts()), -1);
  for (const nn::Expert& expert : mixture->experts()) {
    const auto number = static_cast<size_t>(mixture->expert_numbers()[experts.size()]);
    places[number] = static_cast<int64_t>(experts.size());
    const ExpertLinears& own = experts.emplace_back(held.take_expert<nn::CudaLinearImpl>(expert));
    if (!is_on_cuda(own)) return false;
    layer.linears.insert(layer.linears.end(), {own.gate, own.up, own.down});
    gate_biases.push_back(own.gate->bias);
    up_biases.push_back(own.up->bias);
    down_biases.push_back(own_down_bias(expert));
  }
  if (!put_views(parts_of(experts, &ExpertLinears::gate), layer.gate_views, layer.gate) ||
      !put_views(parts_of(experts, &ExpertLinears::up), layer.up_views, layer.up) ||
      !put_views(parts_of(experts, &ExpertLinears::down), layer.down_views, layer.down)) {
    return false;
  }
  layer.places = ints_on_cuda(places);
  layer.gate_bias = biases_on_cuda(gate_biases, layer.gate.form.out);
  layer.up_bias = biases_on_cuda(up_biases, layer.up.form.out);
  layer.down_bias = biases_on_cuda(down_biases, layer.down.form.out);
  layer.can_take_few_rows = cuda::can_take_few_rows(layer.gate, layer.up, layer.down);
  return true;
}

bool add_shared_on_cuda(const nn::MixtureOfExperts& mixture, HeldLinears& held,
                        CudaExperts::Layer& layer) {
  if (mixture->shared().is_empty()) return true;
  const ExpertLinears linears = held.take_expert<nn::CudaLinearImpl>(mixture->shared());
  if (!is_on_cuda(linears)) return false;
  CudaExperts::Shared& shared = layer.shared.emplace();
  shared.gate = linears.gate;
  shared.up = linears.up;
  shared.down = linears.down;
  shared.gate_bias = floats_on_cuda(linears.gate->bias);
  shared.up_bias = floats_on_cuda(linears.up->bias);
  shared.down_bias = floats_on_cuda(own_down_bias(mixture->shared()));
  if (mixture->shared_gate().is_empty()) return true;
  shared.router = router_on_cuda(mixture->shared_gate(), held);
  return shared.router != nullptr;
}

}  // namespace

cuda::Gating cuda_gating(const nn::Gating& gating) {
  const auto limit = static_cast<float>(gating.limit);
  switch (gating.activation) {
    case nn::Activation::kSilu:
      return {cuda::Activation::kSilu, limit};
    case nn::Activation::kGeluTanh:
      return {cuda::Activation::kGeluTanh, limit};
    case nn::Activation::kClamped:
      break;
  }
  return {cuda::Activation::kClamped, limit};
}

cuda::Buffer floats_on_cuda(const at::Tensor& tensor) {
  if (!tensor.defined()) return {};
  const at::Tensor numbers = tensor.detach().to(at::kFloat).contiguous();
  return cuda::Buffer::of(
      std::span(numbers.const_data_ptr<float>(), static_cast<size_t>(numbers.numel())));
}

cuda::Buffer ints_on_cuda(const std::vector<int64_t>& values) {
  const std::vector<int32_t> narrow(values.begin(), values.end());
  return cuda::Buffer::of(std::span<const int32_t>(narrow));
}

std::optional<CudaExperts::Layer> CudaExperts::take(const nn::MixtureOfExperts& mixture,
                                                    HeldLinears& held) {
  Layer layer;
  layer.num_experts = mixture->num_experts();
  layer.num_held = static_cast<int64_t>(mixture->experts().size());
  if (layer.num_experts > cuda::kMostExperts) return std::nullopt;
  layer.routing = mixture->options();
  layer.gating = cuda_gating(mixture->experts().front()->gating());
  layer.choice_bias = floats_on_cuda(mixture->choice_bias());
  layer.factors = floats_on_cuda(mixture->expert_factors());
  layer.router = router_on_cuda(mixture->router(), held);
  if (layer.router == nullptr || !add_experts_on_cuda(mixture, held, layer) ||
      !add_shared_on_cuda(mixture, held, layer)) {
    return std::nullopt;
  }
  layer.router_bias = floats_on_cuda(layer.router->bias);
  return layer;
}

bool CudaExperts::make_room(const Layer& layer, int64_t rows) {
  bool moves = false;
  const auto need = [&](cuda::Buffer& buffer, int64_t bytes) { moves |= buffer.make_room(bytes); };
  const cuda::RoutingCall routing = routing_call(layer, rows);
  const int64_t pairs = routing.num_pairs();
  const int64_t ffn = layer.gate.form.out, width = layer.down.form.out;
  const int64_t shared_ffn = layer.shared ? layer.shared->gate->out_features() : 0;
  for (cuda::Buffer* buffer : {&logits_, &scores_})
    need(*buffer, rows * layer.num_experts * kFloatBytes);
  need(shared_gates_, rows * kFloatBytes);
  for (cuda::Buffer* buffer : {&chosen_, &weights_, &slots_, &row_of_slot_}) {
    need(*buffer, pairs * kIntBytes);
  }
  need(tiles_, routing.num_tiles() * static_cast<int64_t>(sizeof(cuda::ExpertTile)));
  for (cuda::Buffer* buffer : {&hidden_, &up_}) {
    need(*buffer, std::max(pairs * ffn, rows * shared_ffn) * kFloatBytes);
  }
  need(out_, pairs * width * kFloatBytes);
  return moves;
}

cuda::RoutingCall CudaExperts::routing_call(const Layer& layer, int64_t rows) const {
  const nn::RoutingOptions& options = layer.routing;
  cuda::RoutingCall call;
  call.logits = logits_.as<float>();
  call.router_bias = layer.router_bias.as<const float>();
  call.choice_bias = layer.choice_bias.as<const float>();
  call.factors = layer.factors.as<const float>();
  call.places = layer.places.as<const int32_t>();
  call.scores = scores_.as<float>();
  call.chosen = chosen_.as<int32_t>();
  call.weights = weights_.as<float>();
  call.slots = slots_.as<int32_t>();
  call.row_of_slot = row_of_slot_.as<int32_t>();
  call.tiles = tiles_.as<cuda::ExpertTile>();
  call.rows = static_cast<int32_t>(rows);
  call.num_experts = static_cast<int32_t>(layer.num_experts);
  call.num_held = static_cast<int32_t>(layer.num_held);
  call.top_k = static_cast<int32_t>(options.top_k);
  call.tile_rows = tile_rows_for(layer, rows);
  call.num_groups = static_cast<int32_t>(options.num_groups);
  call.groups_per_token = static_cast<int32_t>(options.groups_per_token);
  call.best_of_group = static_cast<int32_t>(options.best_of_group);
  call.normalizes = options.normalize;
  call.has_sigmoids = options.has_sigmoids;
  call.scale = static_cast<float>(options.scale);
  return call;
}

void CudaExperts::run(const Layer& layer, const float* x, int64_t rows, float* sum) {
  const cuda::RoutingCall routing = routing_call(layer, rows);
  score(layer, x, rows);
  cuda::route(routing);
  // It writes where the chosen experts' features go afterwards.
  if (layer.shared) run_shared(*layer.shared, layer.gating, x, rows, sum);
  const cuda::ExpertRows tiles = {routing.tiles, routing.num_tiles(), routing.tile_rows};
  const cuda::ExpertHidden hidden = {layer.gate,
                                     layer.up,
                                     layer.gate_bias.as<const float>(),
                                     layer.up_bias.as<const float>(),
                                     layer.gating,
                                     hidden_.as<float>(),
                                     up_.as<float>()};
  cuda::compute_hidden(tiles, hidden, x, routing.row_of_slot);
  cuda::multiply_hidden(tiles, {layer.down, out_.as<float>()}, hidden_.as<const float>());
  add_up(layer, routing, sum);
}

// The router's logits, and those of the shared expert's gate.
void CudaExperts::score(const Layer& layer, const float* x, int64_t rows) {
  std::array<cuda::Product, 2> products = {
      {{layer.router->weight.view(), logits_.as<float>()}, {}}};
  const bool is_gated = layer.shared && layer.shared->router != nullptr;
  if (is_gated) products[1] = {layer.shared->router->weight.view(), shared_gates_.as<float>()};
  cuda::multiply(std::span(products).first(is_gated ? 2 : 1), x, rows);
}

void CudaExperts::run_shared(const Shared& shared, const cuda::Gating& gating, const float* x,
                             int64_t rows, float* sum) {
  const std::array<cuda::Product, 2> products = {{{shared.gate->weight.view(), hidden_.as<float>()},
                                                  {shared.up->weight.view(), up_.as<float>()}}};
  cuda::multiply(products, x, rows);
  cuda::GateCall gate;
  gate.gate = hidden_.as<float>();
  gate.up = up_.as<const float>();
  gate.gate_bias = shared.gate_bias.as<const float>();
  gate.up_bias = shared.up_bias.as<const float>();
  gate.rows = static_cast<int32_t>(rows);
  gate.width = static_cast<int32_t>(shared.gate->out_features());
  gate.gating = gating;
  cuda::apply_gate(gate);
  const cuda::Product down = {shared.down->weight.view(), sum};
  cuda::multiply({&down, 1}, hidden_.as<const float>(), rows);
}

void CudaExperts::add_up(const Layer& layer, const cuda::RoutingCall& routing, float* sum) const {
  cuda::ExpertSum call;
  if (layer.shared) {
    call.shared = sum;
    call.shared_bias = layer.shared->down_bias.as<const float>();
    if (layer.shared->router != nullptr) call.shared_gate = shared_gates_.as<const float>();
  }
  call.y = out_.as<const float>();
  call.bias = layer.down_bias.as<const float>();
  call.places = routing.places;
  call.chosen = routing.chosen;
  call.weights = routing.weights;
  call.slots = routing.slots;
  call.sum = sum;
  call.rows = routing.rows;
  call.width = layer.down.form.out;
  call.top_k = routing.top_k;
  cuda::add_up_experts(call);
}

}  // namespace weft::models
