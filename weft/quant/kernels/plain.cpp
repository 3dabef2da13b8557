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

  struct Table {
    F scale;
    F offset;
  };
  static Table make_table(float scale, float offset) {
    return {F{scale, scale, scale, scale}, F{offset, offset, offset, offset}};
  }
  static F value(F codes, const Table& table) { return codes * table.scale + table.offset; }
  static float number(int code) { return static_cast<float>(code); }

  struct Bytes {
    using Table = Plain::Table;
    static constexpr int kVectors = 1;
    static constexpr int kBytes = 4;
    static Table table(float scale, float offset) { return make_table(scale, offset); }
    static void decode(const uint8_t* p, const Table& table, F* values) {
      values[0] = value(F{number(p[0]), number(p[1]), number(p[2]), number(p[3])}, table);
    }
  };

  template <int kBits>
  struct Stream {
    using Table = Plain::Table;
    static constexpr int kVectors = 2;
    static constexpr int kBytes = kBits;
    static Table table(float scale, float offset) { return make_table(scale, offset); }
    static void decode(const uint8_t* from, const Table& table, F* values) {
      const uint64_t eight = load_eight_codes<Plain, kBits>(from);
      const auto code = [&](int k) { return number(eight >> (k * kBits) & ((1 << kBits) - 1)); };
      values[0] = value(F{code(0), code(1), code(2), code(3)}, table);
      values[1] = value(F{code(4), code(5), code(6), code(7)}, table);
    }
  };

  struct Nibbles {
    using Table = Plain::Table;
    static constexpr int kVectors = 2;
    static constexpr int kBytes = 4;
    static Table table(float scale, float offset) { return make_table(scale, offset); }
    static void decode(const uint8_t* p, const Table& table, F* values) {
      values[0] = value(
          F{number(p[0] & 15), number(p[1] & 15), number(p[2] & 15), number(p[3] & 15)}, table);
      values[1] = value(
          F{number(p[0] >> 4), number(p[1] >> 4), number(p[2] >> 4), number(p[3] >> 4)}, table);
    }
  };
};

bool runs_here() { return true; }

}  // namespace

constinit const Kernel kPlainKernel = make_kernel<Plain>("plain", runs_here);

}  // namespace weft::quant::kernels
