#include "weft/train/optimizer/update.h"

#include <array>
#include <cmath>

#include "weft/core/each_width.h"

namespace weft::train {
namespace {

template <bool kNesterov>
__attribute__((always_inline)) inline void update_by_momentum(const UpdateSpan& span,
                                                              const UpdateNumbers& numbers) {
  float* __restrict master = span.master;
  const float* __restrict gradient = span.gradient;
  float* __restrict momentum = span.first;
  const UpdateNumbers n = numbers;
  for (int64_t i = 0; i < span.length; ++i) {
    const float g = gradient[i] * n.gradient_scale;
    const float m = momentum[i] * n.beta1 + g;
    momentum[i] = m;
    const float update = kNesterov ? g + n.beta1 * m : m;
    master[i] = master[i] * n.keep - n.learning_rate * update;
  }
}

// Sums in this many lanes, which become vectors.
constexpr int64_t kLanes = 8;

template <class Term>
__attribute__((always_inline)) inline double sum_in_lanes(int64_t length, Term&& term) {
  std::array<double, kLanes> lanes{};
  int64_t i = 0;
  for (; i + kLanes <= length; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) {
      const double value = term(i + lane);
      lanes[static_cast<size_t>(lane)] += value * value;
    }
  }
  double sum = 0;
  for (; i < length; ++i) {
    const double value = term(i);
    sum += value * value;
  }
  for (const double lane : lanes) sum += lane;
  return sum;
}

}  // namespace

// The order of operations is that of torch.optim.AdamW.
WEFT_FOR_EACH_WIDTH void update_adamw(const UpdateSpan& span, const UpdateNumbers& numbers) {
  float* __restrict master = span.master;
  const float* __restrict gradient = span.gradient;
  float* __restrict first = span.first;
  float* __restrict second = span.second;
  const UpdateNumbers n = numbers;
  for (int64_t i = 0; i < span.length; ++i) {
    const float g = gradient[i] * n.gradient_scale;
    const float m = first[i] + n.rest1 * (g - first[i]);
    const float v = second[i] * n.beta2 + n.rest2 * g * g;
    first[i] = m;
    second[i] = v;
    const float root = std::sqrt(v) * n.root_correction2 + n.epsilon;
    master[i] = master[i] * n.keep - n.step_size * (m / root);
  }
}

WEFT_FOR_EACH_WIDTH void update_sgd(const UpdateSpan& span, const UpdateNumbers& numbers) {
  update_by_momentum<false>(span, numbers);
}

WEFT_FOR_EACH_WIDTH void update_sgd_nesterov(const UpdateSpan& span, const UpdateNumbers& numbers) {
  update_by_momentum<true>(span, numbers);
}

WEFT_FOR_EACH_WIDTH void update_lion(const UpdateSpan& span, const UpdateNumbers& numbers) {
  float* __restrict master = span.master;
  const float* __restrict gradient = span.gradient;
  float* __restrict momentum = span.first;
  const UpdateNumbers n = numbers;
  for (int64_t i = 0; i < span.length; ++i) {
    const float g = gradient[i] * n.gradient_scale;
    const float blend = momentum[i] * n.beta1 + n.rest1 * g;
    const float sign = static_cast<float>((blend > 0) - (blend < 0));
    momentum[i] = momentum[i] * n.beta2 + n.rest2 * g;
    master[i] = master[i] * n.keep - n.learning_rate * sign;
  }
}

WEFT_FOR_EACH_WIDTH double sum_of_squares(const float* values, int64_t length) {
  return sum_in_lanes(length, [values](int64_t i) { return static_cast<double>(values[i]); });
}

WEFT_FOR_EACH_WIDTH void add_squares(const float* __restrict gradient, float scale, double epsilon,
                                     double* __restrict to, int64_t length) {
  for (int64_t i = 0; i < length; ++i) {
    const auto g = static_cast<double>(gradient[i] * scale);
    to[i] += g * g + epsilon;
  }
}

WEFT_FOR_EACH_WIDTH double sum_of_update_squares(const float* gradient, float row,
                                                 const float* columns, int64_t length) {
  return sum_in_lanes(
      length, [=](int64_t i) { return static_cast<double>(gradient[i] * row * columns[i]); });
}

WEFT_FOR_EACH_WIDTH void apply_factored(const UpdateSpan& span, float row, const float* columns,
                                        float keep, float rate) {
  float* __restrict master = span.master;
  const float* __restrict gradient = span.gradient;
  const float* __restrict factors = columns;
  for (int64_t i = 0; i < span.length; ++i) {
    master[i] = master[i] * keep - rate * (gradient[i] * row * factors[i]);
  }
}

WEFT_FOR_EACH_WIDTH void apply_factored_with_momentum(const UpdateSpan& span, float row,
                                                      const float* columns,
                                                      const UpdateNumbers& numbers) {
  float* __restrict master = span.master;
  const float* __restrict gradient = span.gradient;
  float* __restrict momentum = span.first;
  const float* __restrict factors = columns;
  const UpdateNumbers n = numbers;
  for (int64_t i = 0; i < span.length; ++i) {
    const float update = n.learning_rate * (gradient[i] * row * factors[i]);
    momentum[i] = momentum[i] * n.beta1 + n.rest1 * update;
    master[i] = master[i] * n.keep - momentum[i];
  }
}

}  // namespace weft::train
