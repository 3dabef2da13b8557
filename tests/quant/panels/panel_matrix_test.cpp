#include "weft/quant/panels/panel_matrix.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/core/error_text.h"
#include "tests/ops/tensor_checks.h"
#include "weft/quant/kernels/panel_select.h"

namespace weft::quant {
namespace {

using testing::error_text;
using weft::test::expect_close;
using weft::test::seeded;

struct PanelFormat {
  int64_t bits;
  bool is_symmetric;
  int64_t group_size;
  int64_t out;
  int64_t in;
  at::ScalarType scale_type = at::kHalf;
  bool has_two_levels = false;
};

// Rows that fill panels and rows that don't, one block and many; codes of all widths; groups of
// half a block; scales of other types, and those that are products of a small number and one of 256
// columns; panels of which a single token reads several at a time, and some that are left.
constexpr PanelFormat kFormats[] = {{4, false, 32, 32, 96},
                                    {4, true, 32, 7, 32},
                                    {4, false, 64, 33, 128},
                                    {8, true, 32, 48, 64},
                                    {8, false, 32, 5, 96},
                                    {8, true, 128, 17, 256},
                                    {6, true, 16, 18, 96},
                                    {5, false, 32, 16, 64},
                                    {3, true, 64, 9, 64},
                                    {2, false, 16, 20, 128},
                                    {4, false, 32, 40, 64, at::kFloat},
                                    {4, true, 64, 16, 64, at::kBFloat16},
                                    {8, true, 16, 16, 64, at::kFloat},
                                    {6, false, 64, 35, 128},
                                    {6, true, 16, 18, 96, at::kFloat},
                                    {6, true, 16, 34, 512, at::kFloat, true},
                                    {6, true, 16, 16, 64, at::kFloat, true},
                                    {5, false, 32, 21, 352, at::kFloat, true},
                                    {4, false, 32, 16, 256, at::kFloat, true},
                                    {3, true, 16, 30, 288, at::kFloat, true},
                                    {2, false, 16, 9, 768, at::kFloat, true},
                                    {8, true, 64, 17, 320, at::kFloat, true},
                                    {4, false, 32, 150, 96},
                                    {8, true, 32, 117, 64},
                                    {6, true, 16, 201, 96},
                                    {6, true, 16, 150, 512, at::kFloat, true},
                                    {4, false, 32, 240, 288, at::kFloat, true},
                                    {2, false, 16, 150, 512, at::kFloat, true},
                                    {3, true, 32, 117, 64},
                                    {5, false, 32, 130, 96}};

// Numbers of either sign, one for each group.
at::Tensor make_scales(const PanelFormat& format, int64_t seed, double size) {
  const int64_t groups = format.in / format.group_size, run = 256 / format.group_size;
  const at::Tensor numbers = seeded({format.out, groups}, seed) * size;
  if (!format.has_two_levels) return numbers.to(format.scale_type);
  const at::Tensor shared = numbers.narrow(1, 0, (groups + run - 1) / run).to(at::kHalf);
  const at::Tensor codes = at::randint(-128, 128, numbers.sizes()).to(at::kFloat);
  const at::Tensor wide = (shared / 64).to(at::kFloat).repeat_interleave(run, 1);
  return wide.narrow(1, 0, groups) * codes;
}

AffineTensor make_weight(const PanelFormat& format) {
  at::manual_seed(5);
  AffineTensor w;
  w.bits = format.bits;
  w.group_size = format.group_size;
  w.packed = at::randint(256, {format.out, format.in * format.bits / 8}, at::kByte);
  w.scales = make_scales(format, 1, 0.01);
  if (!format.is_symmetric) w.offsets = make_scales(format, 2, 0.1);
  return w;
}

constexpr at::ScalarType kPlainTypes[] = {at::kFloat, at::kHalf, at::kBFloat16};

at::Tensor plain_weight(int64_t out, int64_t in, at::ScalarType type) {
  return seeded({out, in}, 9, at::kFloat).to(type);
}

TEST(PanelMatrix, KeepsEveryBit) {
  for (const PanelFormat& format : kFormats) {
    const AffineTensor w = make_weight(format);
    EXPECT_TRUE(at::equal(panel_values(to_panels(w)), dequantize(w, at::kFloat)))
        << format.bits << " bits, " << format.out << " rows";
  }
  for (const auto type : kPlainTypes) {
    const at::Tensor w = plain_weight(21, 96, type);
    EXPECT_TRUE(at::equal(panel_values(to_panels(w)), w.to(at::kFloat))) << type;
  }
}

TEST(PanelMatrix, TakesTheBytesOfItsForm) {
  const auto bytes = [](const PanelFormat& format) {
    return to_panels(make_weight(format)).num_bytes();
  };
  EXPECT_EQ(bytes({4, true, 32, 16, 32}), 16 * (2 + 16));
  EXPECT_EQ(bytes({4, false, 64, 16, 32 * 2}), 2 * 16 * (4 + 16));
  EXPECT_EQ(bytes({6, true, 16, 16, 32}), 16 * (4 + 24));
  EXPECT_EQ(bytes({2, true, 32, 16, 32}), 16 * (2 + 8));
  EXPECT_EQ(bytes({3, true, 32, 16, 32}), 16 * (2 + 12));
  EXPECT_EQ(bytes({5, true, 32, 16, 32}), 16 * (2 + 20));
  EXPECT_EQ(bytes({8, true, 32, 16, 32}), 16 * (2 + 32));
  EXPECT_EQ(bytes({6, true, 16, 16, 512, at::kFloat}), 16 * 16 * (8 + 24));
  EXPECT_EQ(bytes({6, true, 16, 16, 512, at::kFloat, true}), 16 * (2 * 4 + 16 * (2 + 24)));
  EXPECT_EQ(bytes({4, false, 32, 16, 288, at::kFloat, true}), 16 * (2 * 8 + 9 * (2 + 16)));
  EXPECT_EQ(bytes({4, false, 32, 17, 64, at::kFloat}), 2 * 16 * 2 * (8 + 16));
}

TEST(PanelMatrix, GivesRowsAsTheAffineMatrixDoes) {
  for (const PanelFormat& format : kFormats) {
    const AffineTensor w = make_weight(format);
    const at::Tensor indices = at::tensor({format.out - 1, int64_t{0}}, at::kLong).view({2, 1});
    EXPECT_TRUE(at::equal(panel_rows(to_panels(w), indices), affine_rows(w, indices)));
  }
  const PanelMatrix w = to_panels(make_weight(kFormats[1]));
  EXPECT_EQ(error_text([&] { panel_rows(w, at::full({1}, 7, at::kLong)); }),
            "ShapeError: quant.panel_rows: row 7, expected 0 to 6");
}

// Whole numbers up to the largest code, which is in every block, are codes themselves, so nothing
// is rounded, but many rows where the kernel multiplies them and the weights as bfloat16: as one
// such number each or, with 16 bits, as two.
TEST(PanelMatrix, MultipliesWholeNumbersAsTheAffineMatrixDoes) {
  const auto in_double = [](const at::Tensor& t, bool rounds) {
    return (rounds ? t.to(at::kBFloat16) : t).to(at::kDouble);
  };
  for (const PanelFormat& format : kFormats) {
    const AffineTensor w = make_weight(format);
    const at::Tensor wide = dequantize(w, at::kFloat);
    for (const auto& [bits, most] : {std::pair(8, 127), std::pair(16, 127 * 128)}) {
      const PanelMatrix panels = to_panels(w, bits);
      for (const int64_t tokens : {1, 2, 3, 4, 8, 13, 17, 40, 69}) {
        at::Tensor x = at::randint(-most, most + 1, {tokens, format.in}).to(at::kFloat);
        x.view({tokens, -1, 32}).select(2, 5).fill_(-most);
        for (const auto* kernel : kernels::runnable_panel_kernels()) {
          const bool splits = tokens > PanelInputs::kExactRows && kernel->unpack_codes != nullptr;
          const bool rounds = splits && bits == 8;
          expect_close(panel_matmul_on(*kernel, x, panels),
                       at::matmul(in_double(x, rounds), in_double(wide, rounds).t()),
                       core::join(kernel->name, ", ", format.bits, " bits, activations of ", bits,
                                  ", ", tokens, " tokens"),
                       splits && !rounds ? 1e-5 : 1e-6);
        }
      }
    }
  }
}

// A row whose scales are no products keeps the others' from being kept as such.
TEST(PanelMatrix, ScalesOfTwoLevelsGiveTheSameBitsAsTheirProducts) {
  const AffineTensor w = make_weight({6, true, 16, 33, 512, at::kFloat, true});
  AffineTensor plain = w;
  plain.scales = w.scales.clone();
  plain.scales[32] = seeded({32}, 8, at::kFloat);
  for (const int64_t bits : {8, 16}) {
    const PanelMatrix two_levels = to_panels(w, bits), floats = to_panels(plain, bits);
    EXPECT_EQ(two_levels.form.scales, kernels::PanelScales::kInt8);
    EXPECT_EQ(floats.form.scales, kernels::PanelScales::kFloat32);
    const at::Tensor x = seeded({3, 512}, 6, at::kFloat);
    for (const auto* kernel : kernels::runnable_panel_kernels()) {
      const at::Tensor y = panel_matmul_on(*kernel, x, two_levels);
      EXPECT_TRUE(
          at::equal(y.narrow(1, 0, 32), panel_matmul_on(*kernel, x, floats).narrow(1, 0, 32)))
          << kernel->name;
    }
  }
}

void check_plain_products(int64_t out, at::ScalarType type) {
  const at::Tensor w = plain_weight(out, 96, type);
  const PanelMatrix panels = to_panels(w);
  for (const int64_t tokens : {1, 2, 7, 8, 16, 19}) {
    if (tokens > PanelInputs::kExactRows && type == at::kBFloat16) continue;
    const at::Tensor x = seeded({tokens, 96}, tokens, at::kFloat);
    const at::Tensor expected = at::matmul(x.to(at::kDouble), w.to(at::kDouble).t());
    for (const auto* kernel : kernels::runnable_panel_kernels()) {
      const at::Tensor y = panel_matmul_on(*kernel, x, panels);
      const std::string where = core::join(kernel->name, ", ", out, " rows, ", tokens, " tokens");
      expect_close(y, expected, where, 1e-5);
      EXPECT_TRUE(at::equal(panel_matmul_on(*kernel, x[0], panels), y[0]))
          << where << ": a token's result depends on the others";
    }
  }
}

TEST(PanelMatrix, MultipliesPlainNumbersInFloat32) {
  for (const auto type : kPlainTypes) {
    for (const int64_t out : {21, 150}) check_plain_products(out, type);
  }
}

// Rows of many short sequences.
TEST(PanelMatrix, ManySequencesHaveTheBitsOfEachAlone) {
  const PanelMatrix matrices[] = {to_panels(make_weight({4, false, 32, 40, 96}), 16),
                                  to_panels(plain_weight(40, 96, at::kBFloat16))};
  const at::Tensor x = seeded({9, 5, 96}, 1, at::kFloat);
  for (const auto* kernel : kernels::runnable_panel_kernels()) {
    for (const PanelMatrix& w : matrices) {
      const at::Tensor all = panel_matmul_on(*kernel, x, w);
      for (int64_t i = 0; i < 9; ++i) {
        EXPECT_TRUE(at::equal(panel_matmul_on(*kernel, x[i], w), all[i])) << kernel->name;
      }
    }
  }
}

// One panel, two, three and what is left of more; a last tile of every length.
TEST(PanelMatrix, RoundsManyRowsToBFloat16WhereTheProcessorMultipliesIt) {
  for (const int64_t out : {7, 32, 41, 80}) {
    const at::Tensor w = plain_weight(out, 160, at::kBFloat16);
    const PanelMatrix panels = to_panels(w);
    PanelMatrix finer = panels;
    finer.activation_bits = 16;
    for (const int64_t tokens : {17, 18, 19, 20, 21, 22, 23, 24, 31, 32, 33, 48, 63, 70}) {
      const at::Tensor x = seeded({tokens, 160}, tokens, at::kFloat);
      for (const auto* kernel : kernels::runnable_panel_kernels()) {
        const at::Tensor taken = kernel->multiply_bfloat16 == nullptr ? x : x.to(at::kBFloat16);
        expect_close(panel_matmul_on(*kernel, x, panels),
                     at::matmul(taken.to(at::kDouble), w.to(at::kDouble).t()),
                     core::join(kernel->name, ", ", out, " rows, ", tokens, " tokens"), 1e-5);
        expect_close(panel_matmul_on(*kernel, x, finer),
                     at::matmul(x.to(at::kDouble), w.to(at::kDouble).t()),
                     core::join(kernel->name, ", ", out, " rows, ", tokens, " tokens in parts"),
                     2e-5);
      }
    }
  }
}

TEST(PanelMatrix, RowsServeMatricesOfAllKinds) {
  const PanelMatrix coded = to_panels(make_weight({4, true, 32, 32, 64}), 16);
  PanelMatrix plain = to_panels(plain_weight(16, 64, at::kBFloat16));
  plain.activation_bits = 16;
  const PanelMatrix wide = to_panels(plain_weight(16, 64, at::kFloat));
  const auto& kernel = kernels::active_panel_kernel();
  const at::Tensor x = seeded({19, 64}, 1, at::kFloat);
  at::Tensor a = at::empty({19, 32}), b = at::empty({19, 16}), c = at::empty({19, 16});
  const PanelProduct products[] = {{PanelView(coded), a.mutable_data_ptr<float>(), 32},
                                   {PanelView(plain), b.mutable_data_ptr<float>(), 16},
                                   {PanelView(wide), c.mutable_data_ptr<float>(), 16}};
  using Wants = PanelInputs::Wants;
  const auto row_of = [&](int64_t row, float* /*room*/) {
    return x.const_data_ptr<float>() + row * 64;
  };
  PanelInputs inputs(Wants::of(coded) | Wants::of(plain) | Wants::of(wide));
  for (const int64_t tokens : {19, 3}) {
    inputs.take(kernel, {tokens, 64, tokens}, row_of);
    multiply(kernel, inputs, products);
    const at::Tensor some = x.narrow(0, 0, tokens);
    EXPECT_TRUE(at::equal(a.narrow(0, 0, tokens), panel_matmul(some, coded)));
    EXPECT_TRUE(at::equal(b.narrow(0, 0, tokens), panel_matmul(some, plain)));
    EXPECT_TRUE(at::equal(c.narrow(0, 0, tokens), panel_matmul(some, wide)));
  }
  PanelInputs codes(Wants::of(coded));
  codes.take(kernel, {3, 64, 3}, row_of);
  EXPECT_EQ(error_text([&] { multiply(kernel, codes, products); }),
            "ShapeError: quant.multiply: rows without numbers, expected them; say so in "
            "PanelInputs::Wants");
}

// A row of three blocks, rounded.
struct RoundedRow {
  std::vector<int8_t> codes = std::vector<int8_t>(96), lower_codes = codes;
  std::vector<float> scales = std::vector<float>(3), sums = std::vector<float>(6);

  RoundedRow(const kernels::PanelKernel& kernel, const float* x, bool is_16) {
    kernel.round(x, 3,
                 {codes.data(), is_16 ? lower_codes.data() : nullptr, scales.data(), sums.data()});
  }
  bool operator==(const RoundedRow&) const = default;
};

TEST(PanelMatrix, KernelsRoundAlike) {
  at::Tensor x = seeded({5, 96}, 3, at::kFloat);
  x[1].fill_(0);
  x[2] *= 1e-30;
  x[3] *= 1e-39;
  for (const auto* kernel : kernels::runnable_panel_kernels()) {
    for (const bool is_16 : {false, true}) {
      for (int64_t t = 0; t < 5; ++t) {
        const float* row = x.const_data_ptr<float>() + t * 96;
        EXPECT_EQ(RoundedRow(*kernel, row, is_16),
                  RoundedRow(kernels::kPlainPanelKernel, row, is_16))
            << kernel->name << " token " << t;
      }
    }
  }
}

TEST(PanelMatrix, RoundsActivationsToEightOrSixteenBits) {
  const AffineTensor w = make_weight({4, false, 32, 64, 512});
  const at::Tensor x = seeded({3, 512}, 4, at::kFloat);
  const at::Tensor exact = affine_matmul(x, w);
  const auto error = [&](int64_t bits) {
    return ((panel_matmul(x, to_panels(w, bits)) - exact).norm() / exact.norm()).item<double>();
  };
  EXPECT_LE(error(8), 0.01);
  EXPECT_GT(error(8), 1e-3);
  EXPECT_LE(error(16), 1e-4);
  EXPECT_GT(error(16), 1e-6);
}

TEST(PanelMatrix, KeepsTheInputsShapeAndType) {
  const PanelMatrix w = to_panels(make_weight({8, true, 32, 20, 64}));
  const at::Tensor y = panel_matmul(seeded({2, 3, 64}, 1).to(at::kBFloat16), w);
  EXPECT_EQ(y.sizes(), at::IntArrayRef({2, 3, 20}));
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  EXPECT_EQ(panel_matmul(at::empty({0, 64}), w).sizes(), at::IntArrayRef({0, 20}));
}

TEST(PanelMatrix, RefusesWhatDoesNotFit) {
  AffineTensor w = make_weight({4, false, 32, 8, 64});
  const PanelMatrix panels = to_panels(w);
  EXPECT_EQ(error_text([&] {
              panel_matmul(at::empty({2, 32}), panels);
            }),
            "ShapeError: quant.panel_matmul: x, expected last dimension 64, got [2, 32]; check "
            "which shard of the weight this is");
  EXPECT_EQ(error_text([&] { to_panels(w, 4); }),
            "ShapeError: quant.to_panels: activations of 4 bits, expected 8 or 16");
  w = slice_affine(w, {0, 8}, {0, 48});
  EXPECT_FALSE(fits_panels(w));
  EXPECT_EQ(error_text([&] { to_panels(w); }),
            "ShapeError: quant.to_panels: rows of 48 in groups of 16, expected whole blocks of 32 "
            "and groups of 16 or of whole blocks; keep it as it is");
  EXPECT_EQ(
      error_text([] {
        to_panels(at::ones({2, 32}, at::kDouble));
      }),
      "ShapeError: quant.to_panels: [2, 32] of Double, expected rows of whole blocks of 32 of "
      "float32, float16 or bfloat16; keep it as it is");
}

}  // namespace
}  // namespace weft::quant
