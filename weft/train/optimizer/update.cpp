#include "weft/train/optimizer/update.h"

#include <cmath>

// The same loops for wider vectors, chosen when the program starts. Neither fuses a product with a
// sum (-ffp-contract=off), so all give the same bits.
#if defined(__x86_64__) && defined(__GNUC__)
#define WEFT_FOR_EACH_WIDTH __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define WEFT_FOR_EACH_WIDTH
#endif

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

}  // namespace weft::train
