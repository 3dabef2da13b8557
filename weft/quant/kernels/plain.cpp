#include <c10/util/Half.h>

#include "weft/quant/kernels/row_loops.h"

namespace weft::quant::kernels {
namespace {

/// Four floats in the compiler's own vector type: whatever the build's base machine has.
struct Plain {
  using F = float __attribute__((vector_size(16)));
  static constexpr int kWidth = 4;
  static constexpr int kTokens = 4;
  static constexpr int kFusedTokens = 2;
  static constexpr int kTileRows = 2;
  static constexpr int kTileTokens = 4;

  static F zero() { return F{}; }
  static F load(const float* from) {
    F values;
    __builtin_memcpy(&values, from, sizeof(values));
    return values;
  }
  static void store(F values, float* to) { __builtin_memcpy(to, &values, sizeof(values)); }
  static F fma(F a, F b, F sum) { return a * b + sum; }
  static float sum(F a) { return (a[0] + a[2]) + (a[1] + a[3]); }
  static void sum4(F a, F b, F c, F d, float* sums) {
    sums[0] = sum(a);
    sums[1] = sum(b);
    sums[2] = sum(c);
    sums[3] = sum(d);
  }
  static void widen_half(const uint16_t* half, int64_t count, float* wide) {
    for (int64_t i = 0; i < count; ++i) wide[i] = c10::Half(half[i], c10::Half::from_bits());
  }

  static F four(float value) { return F{value, value, value, value}; }

  /// Codes that are integers.
  struct Linear {
    F scale;
    F offset;
    static Linear make(float scale, float offset) { return {four(scale), four(offset)}; }
    static float number(int code) { return static_cast<float>(code); }
    F of(int a, int b, int c, int d) const {
      return F{number(a), number(b), number(c), number(d)} * scale + offset;
    }
  };
  /// Codes that are floats, looked up.
  template <class Numbers>
  struct Lookup {
    F scale;
    static Lookup make(float scale, float /*offset*/) { return {four(scale)}; }
    F of(int a, int b, int c, int d) const {
      return F{Numbers::number(a), Numbers::number(b), Numbers::number(c), Numbers::number(d)} *
             scale;
    }
  };
  struct E2m1Numbers {
    static float number(int code) { return kE2m1Values[code]; }
  };
  struct E4m3Numbers {
    static float number(int code) { return E4m3<Linear>::kValues.of[code]; }
  };
  using E2m1 = Lookup<E2m1Numbers>;

  template <class Values>
  struct BytesOf {
    using Table = Values;
    static constexpr int kVectors = 1;
    static constexpr int kBytes = 4;
    static Table table(float scale, float offset) { return Table::make(scale, offset); }
    static void decode(const uint8_t* p, const Table& table, F* values) {
      values[0] = table.of(p[0], p[1], p[2], p[3]);
    }
  };
  using Bytes = BytesOf<Linear>;
  using E4m3Bytes = BytesOf<Lookup<E4m3Numbers>>;

  template <int kBits, class Values = Linear>
  struct Stream {
    using Table = Values;
    static constexpr int kVectors = 2;
    static constexpr int kBytes = kBits;
    static Table table(float scale, float offset) { return Table::make(scale, offset); }
    static void decode(const uint8_t* from, const Table& table, F* values) {
      const uint64_t eight = load_eight_codes<Plain, kBits>(from);
      const auto code = [&](int k) {
        return static_cast<int>(eight >> (k * kBits) & ((1 << kBits) - 1));
      };
      values[0] = table.of(code(0), code(1), code(2), code(3));
      values[1] = table.of(code(4), code(5), code(6), code(7));
    }
  };
  using E2m1Stream = Stream<4, E2m1>;

  template <class Values>
  struct NibblesOf {
    using Table = Values;
    static constexpr int kVectors = 2;
    static constexpr int kBytes = 4;
    static Table table(float scale, float offset) { return Table::make(scale, offset); }
    static void decode(const uint8_t* p, const Table& table, F* values) {
      values[0] = table.of(p[0] & 15, p[1] & 15, p[2] & 15, p[3] & 15);
      values[1] = table.of(p[0] >> 4, p[1] >> 4, p[2] >> 4, p[3] >> 4);
    }
  };
  using Nibbles = NibblesOf<Linear>;
  using E2m1Nibbles = NibblesOf<E2m1>;
};

bool runs_here() { return true; }

}  // namespace

constinit const Kernel kPlainKernel = make_kernel<Plain>("plain", runs_here);

}  // namespace weft::quant::kernels
