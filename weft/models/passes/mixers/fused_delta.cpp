#include "weft/models/passes/mixers/fused_delta.h"

#include <ATen/Parallel.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/full.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <initializer_list>
#include <utility>

#include "weft/nn/kernels/select.h"

// Shape letters: K, V features of a key and of a value; P the convolution's past inputs.

namespace weft::models {
namespace {

// Tokens of a head that are computed together: what lies between its steps stays in the caches.
constexpr int64_t kBlock = 64;
// What is added to the square of a length, as in nn::delta_rule.
constexpr double kLengthEps = 1e-6;

at::Tensor floats(const at::Tensor& x) { return x.detach().to(at::kFloat).contiguous(); }

float softplus(float x) { return x > 20 ? x : std::log1p(std::exp(x)); }
float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

const nn::kernels::ElementKernel& elements() { return nn::kernels::active_kernel().float32; }

// Norms each of `rows` rows of `size` numbers that lie `stride` apart, in place.
void norm_rows(const at::Tensor& weight, double eps, int64_t rows, int64_t stride, float* x) {
  float scale = 0;
  for (int64_t row = 0; row < rows; ++row) {
    float* const own = x + row * stride;
    elements().norm({1, weight.size(0), static_cast<float>(eps), own,
                     weight.const_data_ptr<float>(), own, &scale});
  }
}

}  // namespace

// What a thread works in, and where it is in a sequence.
struct FusedDelta::Room {
  float *queries, *keys, *values, *kept, *rates;
  /// Of the convolution, the oldest first; the block's tokens and those before them.
  std::array<const float*, kBlock + kMaxTaps> rows;
  /// First row of the pass and tokens of the block.
  int64_t row = 0, count = 0;
  /// Of the sequence: the convolution's [P, channels] and the rule's [v, K, V].
  float *past, *state;

  static int64_t floats(const nn::DeltaHeads& heads, int64_t values_per_key) {
    return kBlock * (2 * heads.key_dim + values_per_key * heads.value_dim + 2);
  }
};

std::optional<FusedDelta::Layer> FusedDelta::take(const GatedDeltaLayerImpl& layer,
                                                  HeldLinears& held) {
  const GatedDeltaLayerParts& parts = layer.parts();
  Layer taken;
  for (const nn::LinearHolder* holder : std::initializer_list<const nn::LinearHolder*>{
           &*parts.channels, &*parts.gates, &*parts.rates, &*parts.decays, &*parts.output}) {
    taken.linears.push_back(held.take_any<nn::PanelLinearImpl>(*holder));
    if (taken.linears.back() == nullptr) return std::nullopt;
  }
  const auto view = [&](size_t i) { return quant::PanelView(taken.linears[i]->weight); };
  taken.channels = view(0);
  taken.gates = view(1);
  taken.rates = view(2);
  taken.decays = view(3);
  taken.output = view(4);
  return taken.take_net(parts.heads, parts.net) ? std::optional(std::move(taken)) : std::nullopt;
}

bool FusedDelta::Layer::take_net(const nn::DeltaHeads& own, const nn::GatedDeltaParts& parts) {
  const at::Tensor& weight = parts.convolution->weight;
  if (weight.size(2) > kMaxTaps) return false;
  heads = own;
  taps = floats(weight.select(1, 0).t());
  decay_factors = floats(at::exp(floats(parts.decay_log->weight)).neg());
  step_bias = floats(parts.step_bias->weight);
  norm = floats(parts.norm->whole_weight());
  const auto K = static_cast<double>(heads.key_dim);
  key_norm = at::full({heads.key_dim}, 1 / std::sqrt(K), at::kFloat);
  query_norm = at::full({heads.key_dim}, 1 / K, at::kFloat);
  return true;
}

const float* FusedDelta::run(const Layer& layer, const Call& call) {
  const nn::DeltaHeads& heads = layer.heads;
  const int64_t each = heads.num_value_heads / heads.num_key_heads;
  const int64_t floats = Room::floats(heads, each);
  out_.make_room(call.batch * call.tokens * heads.value_features());
  room_.make_room(at::get_num_threads() * floats);
  at::parallel_for(0, call.batch * heads.num_key_heads, 1, [&](int64_t begin, int64_t end) {
    Room room;
    room.queries = room_.data() + at::get_thread_num() * floats;
    room.keys = room.queries + kBlock * heads.key_dim;
    room.values = room.keys + kBlock * heads.key_dim;
    room.kept = room.values + kBlock * each * heads.value_dim;
    room.rates = room.kept + kBlock;
    for (int64_t i = begin; i < end; ++i) {
      run_head(layer, call, i / heads.num_key_heads, i % heads.num_key_heads, room);
    }
  });
  return out_.data();
}

// All tokens of one key head and its value heads.
void FusedDelta::run_head(const Layer& layer, const Call& call, int64_t sequence, int64_t key_head,
                          const Room& thread) {
  const nn::DeltaHeads& heads = layer.heads;
  const int64_t num_past = layer.taps.size(0) - 1;
  const auto& state = call.cache_of(sequence).state(call.layer);
  const int64_t place = call.has_own_caches() ? 0 : sequence;
  Room room = thread;
  room.past = state[0].mutable_data_ptr<float>() + place * num_past * heads.num_channels();
  room.state = state[1].mutable_data_ptr<float>() +
               place * heads.num_value_heads * heads.key_dim * heads.value_dim;
  for (int64_t first = 0; first < call.tokens; first += kBlock) {
    room.row = sequence * call.tokens + first;
    room.count = std::min(kBlock, call.tokens - first);
    for (int64_t i = 0; i < room.count + num_past; ++i) {
      const int64_t token = first + i - num_past;
      room.rows[static_cast<size_t>(i)] =
          token < 0 ? room.past + (token + num_past) * heads.num_channels()
                    : channels.row(sequence * call.tokens + token);
    }
    run_block(layer, call, room, key_head);
  }
  // The last inputs of this head's channels, oldest first: none is overwritten before it is read.
  const int64_t each = heads.num_value_heads / heads.num_key_heads * heads.value_dim;
  const int64_t K = heads.key_dim, features = heads.key_features();
  for (const auto& [start, count] : {std::pair(key_head * K, K),
                                     {features + key_head * K, K},
                                     {2 * features + key_head * each, each}}) {
    for (int64_t i = 0; i < num_past; ++i) {
      const int64_t token = call.tokens + i - num_past;
      const float* const from = token < 0 ? room.past + (token + num_past) * heads.num_channels()
                                          : channels.row(sequence * call.tokens + token);
      std::copy_n(from + start, count, room.past + i * heads.num_channels() + start);
    }
  }
}

void FusedDelta::run_block(const Layer& layer, const Call& call, const Room& room,
                           int64_t key_head) {
  const nn::DeltaHeads& heads = layer.heads;
  const int64_t K = heads.key_dim, each = heads.num_value_heads / heads.num_key_heads;
  const auto convolve = [&](int64_t first, int64_t count, float* y) {
    nn::kernels::active_kernel().convolve({room.count, count, layer.taps.size(0), room.rows.data(),
                                           first, layer.taps.const_data_ptr<float>(),
                                           heads.num_channels(), y});
  };
  convolve(key_head * K, K, room.queries);
  convolve(heads.key_features() + key_head * K, K, room.keys);
  convolve(2 * heads.key_features() + key_head * each * heads.value_dim, each * heads.value_dim,
           room.values);
  const double eps = kLengthEps / static_cast<double>(K);
  norm_rows(layer.query_norm, eps, room.count, K, room.queries);
  norm_rows(layer.key_norm, eps, room.count, K, room.keys);
  for (int64_t i = 0; i < each; ++i) run_values(layer, call, room, key_head * each + i);
}

// One value head of a block.
void FusedDelta::run_values(const Layer& layer, const Call& call, const Room& room, int64_t head) {
  const nn::DeltaHeads& heads = layer.heads;
  const int64_t each = heads.num_value_heads / heads.num_key_heads;
  const int64_t V = heads.value_dim, features = heads.value_features();
  const float factor = layer.decay_factors.const_data_ptr<float>()[head];
  const float bias = layer.step_bias.const_data_ptr<float>()[head];
  for (int64_t t = 0; t < room.count; ++t) {
    room.kept[t] = std::exp(factor * softplus(decays.row(room.row + t)[head] + bias));
    room.rates[t] = sigmoid(rates.row(room.row + t)[head]);
  }
  float* const out = out_.data() + room.row * features + head * V;
  nn::kernels::DeltaHead own;
  own.tokens = room.count;
  own.key_dim = heads.key_dim;
  own.value_dim = V;
  own.queries = room.queries;
  own.keys = room.keys;
  own.values = room.values + head % each * V;
  own.value_stride = each * V;
  own.kept = room.kept;
  own.rates = room.rates;
  own.number_stride = 1;
  own.state = room.state + head * heads.key_dim * V;
  own.out = out;
  own.out_stride = features;
  nn::kernels::active_kernel().delta(own);
  norm_rows(layer.norm, call.norm_eps, room.count, features, out);
  for (int64_t t = 0; t < room.count; ++t) {
    float* const row = out + t * features;
    elements().swiglu(gates.row(room.row + t) + head * V, row, row, V);
  }
}

}  // namespace weft::models
