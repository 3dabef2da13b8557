#include "weft/nn/recurrent/gated_delta_each.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones_like.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "weft/core/error.h"
#include "weft/nn/kernels/select.h"

// Shape letters: those of gated_delta_net.h.

namespace weft::nn {
namespace {

/// What is added to the square of a length, as in transformers.
constexpr float kSquareEps = 1e-6F;

at::Tensor wide(const at::Tensor& x) { return x.to(at::kFloat).contiguous(); }

// silu(gate) * up, row by row, with the kernels' own exponential: libtorch's rounds otherwise where
// a tensor's last vector is not full.
at::Tensor silu_times(const at::Tensor& gate, const at::Tensor& up) {
  at::Tensor y = at::empty_like(up);
  const int64_t size = up.size(-1), rows = up.numel() / size;
  const auto *g = gate.const_data_ptr<float>(), *u = up.const_data_ptr<float>();
  auto* const to = y.mutable_data_ptr<float>();
  at::parallel_for(0, rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      kernels::active_kernel().float32.swiglu(g + row * size, u + row * size, to + row * size,
                                              size);
    }
  });
  return y;
}

float softplus(float x) {
  constexpr float kLinear = 20;
  return x > kLinear ? x : std::log1p(std::exp(x));
}

// x at a length of `length`, to y.
void scale_to(const float* x, float length, int64_t count, float* y) {
  float squares = 0;
  for (int64_t i = 0; i < count; ++i) squares += x[i] * x[i];
  const float scale = length / std::sqrt(squares + kSquareEps);
  for (int64_t i = 0; i < count; ++i) y[i] = x[i] * scale;
}

// A token's part of the rule: what the head keeps of its state, and how fast it writes.
struct DeltaStep {
  const float *query, *key, *value;
  float kept, rate;
};

// The delta rule of one head: S = kept S, S += key (rate (value - key S)), out = query S.
class HeadRule {
 public:
  HeadRule(int64_t key_dim, int64_t value_dim, float* state)
      : key_dim_(key_dim),
        value_dim_(value_dim),
        state_(state),
        written_(static_cast<size_t>(value_dim)) {}

  void run(const DeltaStep& step, float* __restrict out) {
    float* __restrict const written = written_.data();
    std::fill_n(written, value_dim_, 0.F);
    std::fill_n(out, value_dim_, 0.F);
    for (int64_t k = 0; k < key_dim_; ++k) {
      float* __restrict const row = state_ + k * value_dim_;
      const float key = step.key[k];
      for (int64_t j = 0; j < value_dim_; ++j) {
        row[j] *= step.kept;
        written[j] += key * row[j];
      }
    }
    for (int64_t j = 0; j < value_dim_; ++j) {
      written[j] = (step.value[j] - written[j]) * step.rate;
    }
    for (int64_t k = 0; k < key_dim_; ++k) {
      float* __restrict const row = state_ + k * value_dim_;
      const float key = step.key[k], query = step.query[k];
      for (int64_t j = 0; j < value_dim_; ++j) {
        row[j] += key * written[j];
        out[j] += query * row[j];
      }
    }
  }

 private:
  int64_t key_dim_, value_dim_;
  float* state_;
  std::vector<float> written_;
};

// All heads over all tokens of a pass.
class DeltaPass {
 public:
  DeltaPass(const DeltaHeads& heads, GatedDeltaParts& parts, const DeltaProjections& in,
            const at::Tensor& mixed_BTc)
      : heads_(heads),
        mixed_BTc_(mixed_BTc),
        rates_BTv_(wide(in.rates_BTv)),
        decays_BTv_(wide(in.decays_BTv)),
        step_bias_v_(wide(parts.step_bias->weight)),
        decay_log_v_(wide(parts.decay_log->weight)) {}

  // Returns [B, T, v, V] and overwrites the state, [B, v, K, V].
  at::Tensor run(const at::Tensor& state_BvKV) const {
    const int64_t batch = mixed_BTc_.size(0), tokens = mixed_BTc_.size(1);
    const int64_t count = heads_.num_value_heads, V = heads_.value_dim;
    at::Tensor out_BTvV = at::empty({batch, tokens, count, V}, at::kFloat);
    auto* const out = out_BTvV.mutable_data_ptr<float>();
    auto* const state = state_BvKV.mutable_data_ptr<float>();
    at::parallel_for(0, batch * count, 1, [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        HeadRule rule(heads_.key_dim, V, state + task * heads_.key_dim * V);
        std::vector<float> unit(static_cast<size_t>(2 * heads_.key_dim));
        for (int64_t t = 0; t < tokens; ++t) {
          const int64_t row = task / count * tokens + t, head = task % count;
          rule.run(step_of(row, head, unit.data()), out + (row * count + head) * V);
        }
      }
    });
    return out_BTvV;
  }

 private:
  // `room` is for a query and a key.
  DeltaStep step_of(int64_t row, int64_t head, float* room) const {
    const int64_t K = heads_.key_dim, count = heads_.num_value_heads;
    const int64_t key_head = head * heads_.num_key_heads / count;
    const float* const own = mixed_BTc_.const_data_ptr<float>() + row * heads_.num_channels();
    scale_to(own + key_head * K, 1 / std::sqrt(static_cast<float>(K)), K, room);
    scale_to(own + heads_.key_features() + key_head * K, 1, K, room + K);
    const auto at = [&](const at::Tensor& x, int64_t i) { return x.const_data_ptr<float>()[i]; };
    const float fall = std::exp(at(decay_log_v_, head)) *
                       softplus(at(decays_BTv_, row * count + head) + at(step_bias_v_, head));
    return {room, room + K, own + 2 * heads_.key_features() + head * heads_.value_dim,
            std::exp(-fall), 1 / (1 + std::exp(-at(rates_BTv_, row * count + head)))};
  }

  const DeltaHeads& heads_;
  const at::Tensor& mixed_BTc_;
  at::Tensor rates_BTv_, decays_BTv_, step_bias_v_, decay_log_v_;
};

}  // namespace

at::Tensor gated_delta_each(const DeltaHeads& heads, GatedDeltaParts& parts,
                            const DeltaProjections& in, const DeltaState& state) {
  core::check<core::ShapeError>(
      state.size() == 2 && in.channels_BTc.size(-1) == heads.num_channels() &&
          in.gates_BTf.size(-1) == heads.value_features(),
      "nn.gated_delta_each: ", in.channels_BTc.size(-1), " channels, ", in.gates_BTf.size(-1),
      " gates, ", state.size(), " states, expected ", heads.num_channels(), ", ",
      heads.value_features(), ", 2");
  const at::Tensor convolved = wide(parts.convolution->forward(in.channels_BTc, {}, state[0]));
  const at::Tensor mixed_BTc = silu_times(convolved, at::ones_like(convolved));
  const at::Tensor state_BvKV = wide(state[1]);
  const at::Tensor out_BTvV = DeltaPass(heads, parts, in, mixed_BTc).run(state_BvKV);
  if (!state_BvKV.is_same(state[1])) state[1].copy_(state_BvKV);
  const at::Tensor normed_BTf = wide(parts.norm->forward(out_BTvV)).flatten(2);
  return silu_times(wide(in.gates_BTf), normed_BTf);
}

}  // namespace weft::nn
