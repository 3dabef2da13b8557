#pragma once

#include <cstdint>

#include "weft/nn/kernels/kernel.h"
#include "weft/nn/kernels/vectors.h"

/// Loops over rows and arrays of elements T: float, or uint16_t for bfloat16. V: see vectors.h.
/// What does not fill a vector goes through a small array of the same type, so that every element
/// sees the same arithmetic wherever it stands.
namespace weft::nn::kernels {

/// Calls use(index, count) for vectors of an array; count is V::kWidth but for the last.
template <class V, class Use>
[[gnu::always_inline]] inline void for_vectors(int64_t size, Use&& use) {
  int64_t i = 0;
  for (; i + V::kWidth <= size; i += V::kWidth) use(i, V::kWidth);
  if (i < size) use(i, static_cast<int>(size - i));
}

/// The first `count` elements as a vector; what is beyond is 0.
template <class V, class T>
[[gnu::always_inline]] inline typename V::F load_some(const T* from, int count) {
  if (count == V::kWidth) return V::load(from);
  T values[V::kWidth] = {};
  for (int i = 0; i < count; ++i) values[i] = from[i];
  return V::load(values);
}

/// The inverse: writes `count` elements.
template <class V, class T>
[[gnu::always_inline]] inline void store_some(typename V::F values, T* to, int count) {
  if (count == V::kWidth) {
    V::store(values, to);
    return;
  }
  T narrow[V::kWidth];
  V::store(values, narrow);
  for (int i = 0; i < count; ++i) to[i] = narrow[i];
}

/// ElementKernel::add.
template <class V, class T>
void add_arrays(const void* x_in, const void* delta_in, void* sum_out, int64_t count) {
  const auto* x = static_cast<const T*>(x_in);
  const auto* delta = static_cast<const T*>(delta_in);
  auto* sum = static_cast<T*>(sum_out);
  for_vectors<V>(
      count, [&](int64_t i, int n) __attribute__((always_inline)) {
        store_some<V>(load_some<V>(x + i, n) + load_some<V>(delta + i, n), sum + i, n);
      });
}

/// Kernel::rotate.
template <class V>
void rotate(float* x, const float* cos, const float* sin, int64_t dim, float sign) {
  float* const other = x + dim / 2;
  for_vectors<V>(
      dim / 2, [&](int64_t i, int n) __attribute__((always_inline)) {
        const auto a = load_some<V>(x + i, n), b = load_some<V>(other + i, n);
        const auto c = load_some<V>(cos + i, n), s = load_some<V>(sin + i, n) * sign;
        store_some<V>(a * c - b * s, x + i, n);
        store_some<V>(b * c + a * s, other + i, n);
      });
}

/// ElementKernel::norm.
template <class V, class T>
void norm_rows(const NormRows& rows) {
  const auto* weight = static_cast<const T*>(rows.weight);
  for (int64_t row = 0; row < rows.rows; ++row) {
    const T* x = static_cast<const T*>(rows.x) + row * rows.size;
    T* y = static_cast<T*>(rows.y) + row * rows.size;
    typename V::F squares{};
    for_vectors<V>(
        rows.size, [&](int64_t i, int n) __attribute__((always_inline)) {
          const auto value = load_some<V>(x + i, n);
          squares += value * value;
        });
    const float mean = V::sum(squares) / static_cast<float>(rows.size);
    const float scale = 1 / __builtin_sqrtf(mean + rows.eps);
    rows.scale[row] = scale;
    for_vectors<V>(
        rows.size, [&](int64_t i, int n) __attribute__((always_inline)) {
          store_some<V>(load_some<V>(x + i, n) * scale * load_some<V>(weight + i, n), y + i, n);
        });
  }
}

/// ElementKernel::norm_backward.
template <class V, class T>
void norm_rows_backward(const NormRows& rows, const NormGradient& gradient) {
  const auto* weight = static_cast<const T*>(rows.weight);
  for (int64_t row = 0; row < rows.rows; ++row) {
    const T* x = static_cast<const T*>(rows.x) + row * rows.size;
    const T* d_y = static_cast<const T*>(gradient.d_y) + row * rows.size;
    T* d_x = static_cast<T*>(gradient.d_x) + row * rows.size;
    const float scale = rows.scale[row];
    typename V::F products{};
    for_vectors<V>(
        rows.size, [&](int64_t i, int n) __attribute__((always_inline)) {
          const auto value = load_some<V>(x + i, n), grad = load_some<V>(d_y + i, n);
          products += value * grad * load_some<V>(weight + i, n);
          const auto sum = load_some<V>(gradient.d_weight + i, n) + grad * value * scale;
          store_some<V>(sum, gradient.d_weight + i, n);
        });
    const float mean = V::sum(products) / static_cast<float>(rows.size);
    const float back = mean * scale * scale * scale;
    const T* d_sum = static_cast<const T*>(gradient.d_sum);
    if (d_sum != nullptr) d_sum += row * rows.size;
    for_vectors<V>(
        rows.size, [&](int64_t i, int n) __attribute__((always_inline)) {
          const auto grad = load_some<V>(d_y + i, n) * load_some<V>(weight + i, n);
          auto result = grad * scale - load_some<V>(x + i, n) * back;
          if (d_sum != nullptr) result += load_some<V>(d_sum + i, n);
          store_some<V>(result, d_x + i, n);
        });
  }
}

/// 1 / (1 + e^-x), which neither end overflows.
template <class V>
[[gnu::always_inline]] inline typename V::F sigmoid(typename V::F x) {
  const auto small = V::exp(x > 0.0F ? -x : x);
  const auto fraction = 1.0F / (small + 1.0F);
  return x > 0.0F ? fraction : small * fraction;
}

/// ElementKernel::swiglu.
template <class V, class T>
void swiglu_arrays(const void* gate_in, const void* up_in, void* y_out, int64_t count) {
  const auto* gate = static_cast<const T*>(gate_in);
  const auto* up = static_cast<const T*>(up_in);
  auto* y = static_cast<T*>(y_out);
  for_vectors<V>(
      count, [&](int64_t i, int n) __attribute__((always_inline)) {
        const auto g = load_some<V>(gate + i, n);
        store_some<V>(g * sigmoid<V>(g) * load_some<V>(up + i, n), y + i, n);
      });
}

/// ElementKernel::swiglu_backward.
template <class V, class T>
void swiglu_arrays_backward(const void* gate_in, const void* up_in, const void* d_y_in,
                            void* d_gate_out, void* d_up_out, int64_t count) {
  const auto* gate = static_cast<const T*>(gate_in);
  const auto* up = static_cast<const T*>(up_in);
  const auto* d_y = static_cast<const T*>(d_y_in);
  auto* d_gate = static_cast<T*>(d_gate_out);
  auto* d_up = static_cast<T*>(d_up_out);
  for_vectors<V>(
      count, [&](int64_t i, int n) __attribute__((always_inline)) {
        const auto g = load_some<V>(gate + i, n), u = load_some<V>(up + i, n);
        const auto d = load_some<V>(d_y + i, n), s = sigmoid<V>(g);
        store_some<V>(d * u * (s + g * s * (1.0F - s)), d_gate + i, n);
        store_some<V>(d * g * s, d_up + i, n);
      });
}

/// ElementKernel::geglu. 1 + tanh(u) is 2 sigmoid(2 u).
template <class V, class T>
void geglu_arrays(const void* gate_in, const void* up_in, void* y_out, int64_t count) {
  constexpr float kRoot = 1.5957691216F, kCube = 0.044715F;
  const auto* gate = static_cast<const T*>(gate_in);
  const auto* up = static_cast<const T*>(up_in);
  auto* y = static_cast<T*>(y_out);
  for_vectors<V>(
      count, [&](int64_t i, int n) __attribute__((always_inline)) {
        const auto g = load_some<V>(gate + i, n);
        const auto share = sigmoid<V>(kRoot * (g + kCube * g * g * g));
        store_some<V>(g * share * load_some<V>(up + i, n), y + i, n);
      });
}

/// ElementKernel::clamped_swiglu.
template <class V, class T>
void clamped_swiglu_arrays(const void* gate_in, const void* up_in, float limit, void* y_out,
                           int64_t count) {
  const auto* gate = static_cast<const T*>(gate_in);
  const auto* up = static_cast<const T*>(up_in);
  auto* y = static_cast<T*>(y_out);
  for_vectors<V>(
      count, [&](int64_t i, int n) __attribute__((always_inline)) {
        const auto most = V::all(limit);
        const auto g_in = load_some<V>(gate + i, n), u_in = load_some<V>(up + i, n);
        const auto g = g_in > most ? most : g_in;
        const auto below = u_in > most ? most : u_in;
        const auto u = below < -most ? -most : below;
        store_some<V>(g * sigmoid<V>(g * kClampedSlope) * (u + 1.0F), y + i, n);
      });
}

/// ElementKernel::gate_by_sigmoid.
template <class V, class T>
void gate_by_sigmoid(const void* gate_in, const void* x_in, void* y_out, int64_t count) {
  const auto* gate = static_cast<const T*>(gate_in);
  const auto* x = static_cast<const T*>(x_in);
  auto* y = static_cast<T*>(y_out);
  for_vectors<V>(
      count, [&](int64_t i, int n) __attribute__((always_inline)) {
        store_some<V>(load_some<V>(x + i, n) * sigmoid<V>(load_some<V>(gate + i, n)), y + i, n);
      });
}

/// ElementKernel::row_max.
template <class V, class T>
float row_max(const LogitsRow& row) {
  const auto* x = static_cast<const T*>(row.x);
  float most = -__builtin_inff();
  auto all = V::all(most);
  int64_t i = 0;
  for (; i + V::kWidth <= row.size; i += V::kWidth) all = V::max(V::load(x + i), all);
  most = V::largest(all);
  if (i < row.size) {
    const auto rest = load_some<V>(x + i, static_cast<int>(row.size - i));
    for (int64_t r = 0; i + r < row.size; ++r) most = rest[r] > most ? rest[r] : most;
  }
  return most;
}

/// ElementKernel::row_exp_sum.
template <class V, class T>
float row_exp_sum(const LogitsRow& row) {
  const auto* x = static_cast<const T*>(row.x);
  typename V::F sums{};
  int64_t i = 0;
  for (; i + V::kWidth <= row.size; i += V::kWidth) sums += V::exp(V::load(x + i) - row.max);
  float sum = V::sum(sums);
  if (i < row.size) {
    const auto rest = V::exp(load_some<V>(x + i, static_cast<int>(row.size - i)) - row.max);
    for (int64_t r = 0; i + r < row.size; ++r) sum += rest[r];
  }
  return sum;
}

/// ElementKernel::row_softmax.
template <class V, class T>
void row_softmax(const LogitsRow& row, float log_sum, float factor, float even, void* out_in) {
  const auto* x = static_cast<const T*>(row.x);
  auto* out = static_cast<T*>(out_in);
  for_vectors<V>(
      row.size, [&](int64_t i, int n) __attribute__((always_inline)) {
        const auto p = V::exp(load_some<V>(x + i, n) - row.max - log_sum);
        store_some<V>(p * factor - even, out + i, n);
      });
}

/// ElementKernel::widen.
template <class V, class T>
void widen_array(const void* x, float* y, int64_t count) {
  for_vectors<V>(
      count, [&](int64_t i, int n) __attribute__((always_inline)) {
        store_some<V>(load_some<V>(static_cast<const T*>(x) + i, n), y + i, n);
      });
}

/// ElementKernel::narrow.
template <class V, class T>
void narrow_array(const float* x, void* y, int64_t count) {
  for_vectors<V>(
      count, [&](int64_t i, int n) __attribute__((always_inline)) {
        store_some<V>(load_some<V>(x + i, n), static_cast<T*>(y) + i, n);
      });
}

/// All of them for elements of type T.
template <class V, class T>
constexpr ElementKernel element_kernel() {
  return {add_arrays<V, T>,
          norm_rows<V, T>,
          norm_rows_backward<V, T>,
          swiglu_arrays<V, T>,
          swiglu_arrays_backward<V, T>,
          geglu_arrays<V, T>,
          clamped_swiglu_arrays<V, T>,
          gate_by_sigmoid<V, T>,
          row_max<V, T>,
          row_exp_sum<V, T>,
          row_softmax<V, T>,
          widen_array<V, T>,
          narrow_array<V, T>};
}

}  // namespace weft::nn::kernels
