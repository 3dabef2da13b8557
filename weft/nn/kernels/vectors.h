#pragma once

#include <cstdint>
#include <utility>

#include "weft/nn/kernels/kernel.h"

/// Vectors in the compiler's own types, so that one text serves every instruction set. All of it is
/// templates on a type in the unnamed namespace of the file that includes this, and always
/// inlined: nothing is shared between files.
namespace weft::nn::kernels {

/// kWidth floats F, integers I and U of the same places, the 16 bits of a bfloat16 each, Half, and
/// integers of 8 bits, Bytes: as Types has them.
template <class Types>
struct Vectors {
  using F = typename Types::F;
  using I = typename Types::I;
  using U = typename Types::U;
  using Half = typename Types::Half;
  using Bytes = typename Types::Bytes;
  static constexpr int kWidth = sizeof(F) / sizeof(float);

  [[gnu::always_inline]] static F all(float value) { return F{} + value; }
  [[gnu::always_inline]] static F load(const float* from) {
    F values;
    __builtin_memcpy(&values, from, sizeof(values));
    return values;
  }
  [[gnu::always_inline]] static void store(F values, float* to) {
    __builtin_memcpy(to, &values, sizeof(values));
  }
  /// bfloat16 is the upper half of a float32.
  [[gnu::always_inline]] static F load(const uint16_t* from) {
    Half half;
    __builtin_memcpy(&half, from, sizeof(half));
    const U bits = __builtin_convertvector(half, U) << 16;
    F values;
    __builtin_memcpy(&values, &bits, sizeof(values));
    return values;
  }
  /// Rounds to nearest, ties to even; NaN stays NaN.
  [[gnu::always_inline]] static void store(F values, uint16_t* to) {
    U bits;
    __builtin_memcpy(&bits, &values, sizeof(bits));
    const U rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
    const U quiet = (bits >> 16) | 0x40u;
    const Half half = __builtin_convertvector(values != values ? quiet : rounded, Half);
    __builtin_memcpy(to, &half, sizeof(half));
  }
  /// float16, where no instruction does it. Sources of both: Giesen 2012, "Half to float done quic"
  /// and "Float to half variants".
  [[gnu::always_inline]] static F load(const Float16* from) {
    Half half;
    __builtin_memcpy(&half, from, sizeof(half));
    const U bits = __builtin_convertvector(half, U), size = (bits & 0x7FFFu) << 13;
    // The exponent's bias differs by 112; of infinity and NaN it is all ones again.
    const F scaled = as<F>(size) * 0x1p112F;
    const U special = size >= 0x0F800000u ? size | 0x7F800000u : as<U>(scaled);
    return as<F>(special | (bits & 0x8000u) << 16);
  }
  /// Rounds to nearest, ties to even; what is larger than the largest becomes that; NaN stays NaN.
  [[gnu::always_inline]] static void store(F values, Float16* to) {
    const U bits = as<U>(values), sign = bits >> 16 & 0x8000u;
    const F size = as<F>(bits & 0x7FFFFFFFu), most = size > kMostFloat16 ? all(kMostFloat16) : size;
    const U normal = (as<U>(most) - 0x37FFF001u + (as<U>(most) >> 13 & 1u)) >> 13;
    // Below the smallest normal number: a unit of 0.5's last place is one of them.
    const U small = as<U>(most + 0.5F) - 0x3F000000u;
    const U number = most < 0x1p-14F ? small : normal;
    const Half half =
        __builtin_convertvector((values != values ? U{} + 0x7E00u : number) | sign, Half);
    __builtin_memcpy(to, &half, sizeof(half));
  }
  static constexpr float kMostFloat16 = 65504.0F;
  [[gnu::always_inline]] static F load(const int8_t* from) {
    Bytes bytes;
    __builtin_memcpy(&bytes, from, sizeof(bytes));
    return __builtin_convertvector(__builtin_convertvector(bytes, I), F);
  }
  [[gnu::always_inline]] static F max(F a, F b) { return a > b ? a : b; }
  [[gnu::always_inline]] static float sum(F a) {
    return fold<kWidth / 2>(
        a, [](F b, F c) __attribute__((always_inline)) { return b + c; });
  }
  [[gnu::always_inline]] static float largest(F a) {
    return fold<kWidth / 2>(
        a, [](F b, F c) __attribute__((always_inline)) { return max(b, c); });
  }

  /// e^x for x <= 88, within 2 units of the last place; 0 below -87, NaN for NaN. x = n ln 2 + r,
  /// the rest by its Taylor series. Source: Muller et al. 2018, "Handbook of Floating-Point
  /// Arithmetic", 10.5.
  [[gnu::always_inline]] static F exp(F x) {
    constexpr float kLog2E = 1.44269504F, kRound = 12582912.0F;
    constexpr float kLn2High = 0.693359375F, kLn2Low = -2.12194440e-4F;
    const F in_range = x < -87.0F ? all(-87.0F) : x;
    const F shifted = in_range * kLog2E + kRound;
    const F n = shifted - kRound;
    const F r = (in_range - n * kLn2High) - n * kLn2Low;
    F p = all(1.0F / 720) * r + 1.0F / 120;
    p = p * r + 1.0F / 24;
    p = p * r + 1.0F / 6;
    p = p * r + 0.5F;
    p = p * r + 1.0F;
    p = p * r + 1.0F;
    I bits;
    __builtin_memcpy(&bits, &p, sizeof(bits));
    bits += __builtin_convertvector(n, I) << 23;
    F y;
    __builtin_memcpy(&y, &bits, sizeof(y));
    return x < -87.0F ? F{} : y;
  }

  /// tanh x; near 0 by its series, so that small numbers keep their digits.
  [[gnu::always_inline]] static F tanh(F x) {
    const F size = x < 0.0F ? -x : x, square = x * x;
    const F small = exp(size * -2.0F);
    const F far = (1.0F - small) / (1.0F + small);
    const F near = x + x * square * (square * (square * (-17.0F / 315) + 2.0F / 15) - 1.0F / 3);
    return size < 0.1F ? near : (x < 0.0F ? -far : far);
  }

 private:
  template <class To, class From>
  [[gnu::always_inline]] static To as(From from) {
    To to;
    __builtin_memcpy(&to, &from, sizeof(to));
    return to;
  }
  /// The lanes kStep further, in a circle.
  template <int kStep, int... kLane>
  [[gnu::always_inline]] static F turn(F a, std::integer_sequence<int, kLane...>) {
    return __builtin_shufflevector(a, a, ((kLane + kStep) % kWidth)...);
  }
  /// All lanes by `join`, the upper half with the lower, and so on.
  template <int kStep, class Join>
  [[gnu::always_inline]] static float fold(F a, Join join) {
    if constexpr (kStep == 0) {
      return a[0];
    } else {
      const F turned = turn<kStep>(a, std::make_integer_sequence<int, kWidth>());
      return fold<kStep / 2>(join(a, turned), join);
    }
  }
};

}  // namespace weft::nn::kernels
