// What one thread of a kernel computes, on the processor.
#include "weft/cuda/kernels/arithmetic.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "weft/cuda/kernels/spans.h"

namespace weft::cuda {
namespace {

// A matrix of codes with plain loops to compare with.
struct Codes {
  Codes(int32_t bits, int32_t out, int32_t in, int32_t group)
      : bits(bits),
        in(in),
        group(group),
        data(static_cast<size_t>(out * in * bits / 8)),
        scales(static_cast<size_t>(out * in / group)),
        offsets(scales.size()) {
    uint32_t state = 7;
    for (uint8_t& byte : data)
      byte = static_cast<uint8_t>((state = state * 1664525 + 1013904223) >> 24);
    for (size_t i = 0; i < scales.size(); ++i) {
      scales[i] = 0.01F * static_cast<float>(i % 13 + 1);
      offsets[i] = 0.3F - 0.02F * static_cast<float>(i % 7);
    }
    view.data = data.data();
    view.scales = scales.data();
    view.offsets = offsets.data();
    view.out = out;
    view.in = in;
    view.bits = bits;
    view.units_per_group = group / kUnit;
  }

  // Bit by bit.
  float code(int32_t row, int32_t column) const {
    const size_t begin = (static_cast<size_t>(row) * in + column) * bits;
    uint32_t value = 0;
    for (int32_t bit = 0; bit < bits; ++bit) {
      value |= (data[(begin + bit) / 8] >> ((begin + bit) % 8) & 1U) << bit;
    }
    return static_cast<float>(value);
  }
  float value(int32_t row, int32_t column) const {
    const size_t index = static_cast<size_t>(row * (in / group) + column / group);
    const float offset = view.offsets == nullptr
                             ? -static_cast<float>(1 << (bits - 1)) * scales[index]
                             : offsets[index];
    return scales[index] * code(row, column) + offset;
  }

  int32_t bits, in, group;
  std::vector<uint8_t> data;
  std::vector<float> scales, offsets;
  MatrixView view;
};

TEST(CudaArithmetic, CodesOfAllBitsHaveTheirValues) {
  for (const int32_t bits : {2, 3, 4, 5, 6, 8}) {
    for (const bool is_symmetric : {false, true}) {
      Codes w(bits, 3, 48, 16);
      if (is_symmetric) w.view.offsets = nullptr;
      for (int32_t row = 0; row < 3; ++row) {
        for (int32_t unit = 0; unit < 48 / kUnit; ++unit) {
          float v[kUnit];
          unit_values(w.view, row, unit, v);
          for (int32_t i = 0; i < kUnit; ++i) {
            EXPECT_EQ(v[i], w.value(row, unit * kUnit + i)) << bits << " bits, row " << row;
          }
        }
      }
    }
  }
}

// All of a matrix, span by span.
void expect_spans_have_their_values(const Codes& w, const std::string& what) {
  visit_span(w.view, [&]<class Span>(const Span& /*form*/) {
    for (int32_t row = 0; row < w.view.out; ++row) {
      for (int32_t column = 0; column < w.in; column += Span::kColumns) {
        Span span;
        span.load(w.view, row, column / Span::kColumns, column / w.group);
        const ScaleOffset group = span.scale_offset(w.view);
        for (int32_t i = 0; i < Span::kColumns; ++i) {
          float q[kUnit];
          span.read(i / kUnit, q);
          EXPECT_EQ(value_of(q[i % kUnit], group), w.value(row, column + i)) << what;
        }
      }
    }
  });
}

TEST(CudaArithmetic, SpansOfCodesHaveTheirValues) {
  for (const int32_t bits : {2, 3, 4, 5, 6, 8}) {
    for (const int32_t group : {8, 16, 24, 32, 96}) {
      expect_spans_have_their_values(
          Codes(bits, 3, 288, group),
          std::to_string(bits) + " bits in groups of " + std::to_string(group));
    }
  }
}

TEST(CudaArithmetic, HalvesOfAllKindsBecomeFloats) {
  EXPECT_EQ(from_float16(0x3c00), 1.0F);
  EXPECT_EQ(from_float16(0xc500), -5.0F);
  EXPECT_EQ(from_float16(0x7bff), 65504.0F);
  EXPECT_EQ(from_float16(0x0001), 0x1p-24F);
  EXPECT_EQ(from_float16(0x83ff), -0x3ffp-24F);
  EXPECT_EQ(from_float16(0x0400), 0x1p-14F);
  EXPECT_TRUE(std::signbit(from_float16(0x8000)));
  EXPECT_EQ(from_float16(0xfc00), -INFINITY);
  EXPECT_TRUE(std::isnan(from_float16(0x7e00)));
  EXPECT_EQ(from_bfloat16(0x3f80), 1.0F);
  EXPECT_EQ(from_bfloat16(0xc0a0), -5.0F);
}

TEST(CudaArithmetic, PlainNumbersOfAllKindsAreRead) {
  alignas(32) const float floats[kUnit] = {1, 2, 3, 4, 5, -6, 7, 0.5};
  alignas(16) const uint16_t halves[kUnit] = {0x3c00, 0x4000, 0, 0, 0, 0, 0, 0x3800};
  MatrixView w;
  w.out = 1;
  w.in = kUnit;
  w.data = reinterpret_cast<const uint8_t*>(floats);
  float v[kUnit];
  unit_values(w, 0, 0, v);
  EXPECT_EQ(std::vector<float>(v, v + kUnit), std::vector<float>(floats, floats + kUnit));
  w.data = reinterpret_cast<const uint8_t*>(halves);
  w.numbers = Dtype::kF16;
  unit_values(w, 0, 0, v);
  EXPECT_EQ(std::vector<float>(v, v + kUnit), (std::vector<float>{1, 2, 0, 0, 0, 0, 0, 0.5}));
  w.numbers = Dtype::kBF16;
  unit_values(w, 0, 0, v);
  EXPECT_EQ(v[1], 2.0F);
}

TEST(CudaArithmetic, PairsOfAHeadAreTurned) {
  const float x[6] = {1, 2, 3, 4, 5, 6}, cos[4] = {0, 1, 0, 1}, sin[4] = {1, 0, 1, 0};
  std::vector<float> y;
  for (int32_t i = 0; i < 6; ++i) y.push_back(turned(x, cos, sin, 4, i));
  // The first pair by a right angle, the second not at all, and what is behind passes through.
  EXPECT_EQ(y, (std::vector<float>{-3, 2, 1, 4, 5, 6}));
}

TEST(CudaArithmetic, SwigluIsSiluTimesUp) {
  EXPECT_FLOAT_EQ(swiglu(2, 3), 6 / (1 + std::exp(-2.0F)));
  EXPECT_EQ(swiglu(-200, 3), 0.0F);
}

}  // namespace
}  // namespace weft::cuda
