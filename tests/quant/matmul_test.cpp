#include "weft/quant/matmul.h"

#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include "tests/quant/quant_cases.h"
#include "weft/core/error.h"

namespace weft::quant {
namespace {

using core::ShapeError;
using kernels::Kernel;
using test::for_each_kernel;
using test::Format;
using test::kMicroscaledModes;
using test::message_of;
using test::random_affine;
using test::random_microscaled;
using test::reference_values;

/// |y - x w^T| against float64, in units of the sum of magnitudes, whose rounding is the bound.
double largest_error(const at::Tensor& y, const at::Tensor& x, const at::Tensor& values) {
  const auto exact = at::matmul(x.to(at::kDouble), values.to(at::kDouble).t());
  const auto magnitude = at::matmul(x.to(at::kDouble).abs(), values.to(at::kDouble).abs().t());
  EXPECT_GT(exact.std().item<double>(), 0.0);
  return ((y.to(at::kDouble) - exact).abs() / magnitude).max().item<double>();
}

template <class Matrix>
void expect_matmul(const Kernel& kernel, const Matrix& w, const at::Tensor& values, int64_t tokens,
                   const std::string& text) {
  const auto x = at::randn({tokens, w.in_features()});
  const auto y = matmul_on(kernel, x, w);
  EXPECT_EQ(y.sizes(), (std::vector<int64_t>{tokens, w.out_features()}));
  EXPECT_LT(largest_error(y, x, values), 1e-6) << text << ", " << tokens << " tokens";
}

TEST(AffineMatmul, EqualsDequantizeThenMatmulForEveryFormat) {
  at::manual_seed(8);
  for_each_kernel([](const Kernel& kernel) {
    for (const int64_t bits : {2, 3, 4, 5, 6, 8}) {
      for (const int64_t group : {8, 16, 32, 64, 128}) {
        for (const auto dtype : {at::kFloat, at::kHalf, at::kBFloat16}) {
          for (const bool symmetric : {false, true}) {
            const Format format{bits, group, dtype, symmetric};
            const auto w = random_affine(format, 13, group * 3);
            const auto values = reference_values(w);
            for (const int64_t tokens : {1, 2, 7, 9, 19}) {
              expect_matmul(kernel, w, values, tokens, format.text());
            }
          }
        }
      }
    }
  });
}

TEST(AffineMatmul, TakesAnyNumberOfTokens) {
  at::manual_seed(9);
  for_each_kernel([](const Kernel& kernel) {
    for (const int64_t bits : {4, 8, 3}) {
      const auto w = random_affine({bits, 32, at::kHalf}, 31, 160);
      const auto values = reference_values(w);
      for (int64_t tokens = 1; tokens <= 40; ++tokens) {
        expect_matmul(kernel, w, values, tokens, std::to_string(bits));
      }
    }
  });
}

TEST(AffineMatmul, TakesAnyNumberOfRows) {
  at::manual_seed(10);
  for_each_kernel([](const Kernel& kernel) {
    for (const int64_t out : {1, 2, 3, 4, 5, 63, 64, 65, 301}) {
      const auto w = random_affine({4, 64}, out, 576);
      const auto values = reference_values(w);
      for (const int64_t tokens : {2, 23}) {
        expect_matmul(kernel, w, values, tokens, std::to_string(out) + " rows");
      }
    }
  });
}

TEST(AffineMatmul, TakesWidthsThatFillNoVector) {
  at::manual_seed(11);
  for_each_kernel([](const Kernel& kernel) {
    for (const Format& format : {Format{8, 5}, Format{8, 1}, Format{4, 3}, Format{4, 10},
                                 Format{6, 2}, Format{3, 4}, Format{2, 12}, Format{8, 24}}) {
      const auto w = random_affine(format, 9, format.group_size * 14);
      const auto values = reference_values(w);
      for (const int64_t tokens : {1, 3, 11}) {
        expect_matmul(kernel, w, values, tokens, format.text());
      }
    }
  });
}

TEST(AffineMatmul, IsWithinOneInHundredThousandOfTheReferenceDot) {
  at::manual_seed(12);
  const auto w = random_affine({4, 32}, 17, 1536);
  const auto x = at::randn({3, 1536});
  const auto expected = at::matmul(x, reference_values(w).t());
  for_each_kernel([&](const Kernel& kernel) {
    const auto error = (matmul_on(kernel, x, w) - expected).norm() / expected.norm();
    EXPECT_LT(error.item<double>(), 1e-5);
  });
}

TEST(AffineMatmul, GivesTheSameBitsOnAnyNumberOfThreads) {
  at::manual_seed(13);
  const int before = at::get_num_threads();
  for_each_kernel([](const Kernel& kernel) {
    for (const int64_t bits : {4, 6, 8}) {
      const auto w = random_affine({bits, 32, at::kHalf}, 1023, 512);
      for (const int64_t tokens : {1, 5, 33}) {
        const auto x = at::randn({tokens, 512});
        at::set_num_threads(1);
        const auto one = matmul_on(kernel, x, w);
        at::set_num_threads(2);
        EXPECT_TRUE(at::equal(matmul_on(kernel, x, w), one)) << bits << ", " << tokens;
      }
    }
  });
  at::set_num_threads(before);
}

TEST(AffineMatmul, RoundsHalfTypesOnce) {
  at::manual_seed(14);
  const auto w = random_affine({4, 32}, 10, 64);
  for (const auto dtype : {at::kHalf, at::kBFloat16}) {
    for (const int64_t tokens : {1, 12}) {
      const auto x = at::randn({tokens, 64}).to(dtype);
      const auto y = affine_matmul(x, w);
      EXPECT_EQ(y.scalar_type(), dtype);
      EXPECT_TRUE(at::equal(y, affine_matmul(x.to(at::kFloat), w).to(dtype)));
    }
  }
}

TEST(AffineMatmul, KeepsLeadingDimensionsAndTakesAnyStrides) {
  at::manual_seed(15);
  const auto w = random_affine({8, 32}, 6, 96);
  const auto x = at::randn({96, 3, 5}).permute({2, 1, 0});
  const auto y = affine_matmul(x, w);
  EXPECT_EQ(y.sizes(), (std::vector<int64_t>{5, 3, 6}));
  EXPECT_LT(largest_error(y, x, reference_values(w)), 1e-6);
  EXPECT_EQ(affine_matmul(at::randn({96}), w).sizes(), (std::vector<int64_t>{6}));
  EXPECT_EQ(affine_matmul(at::randn({0, 96}), w).sizes(), (std::vector<int64_t>{0, 6}));
}

TEST(AffineMatmul, WorksInInferenceMode) {
  at::manual_seed(16);
  const auto w = random_affine({4, 32}, 2000, 64);
  const auto x = at::randn({20, 64});
  const auto expected = affine_matmul(x, w);
  const c10::InferenceMode guard;
  EXPECT_TRUE(at::equal(affine_matmul(x * 1, w), expected));
}

TEST(AffineMatmul, RecordsNoGradient) {
  const auto w = random_affine({4, 32}, 4, 64);
  const auto x = at::randn({2, 64}).requires_grad_(true);
  EXPECT_FALSE(affine_matmul(x, w).requires_grad());
}

TEST(AffineMatmul, NamesWhatItRefuses) {
  const auto w = random_affine({4, 32}, 4, 64);
  EXPECT_EQ(message_of<ShapeError>([&] {
              affine_matmul(at::randn({2, 32}), w);
            }),
            "quant.affine_matmul: x, expected last dimension 64, got [2, 32]; check which shard of "
            "the weight this is");
  EXPECT_EQ(message_of<ShapeError>([&] {
              affine_matmul(at::ones({2, 64}, at::kLong), w);
            }),
            "quant.affine_matmul: x, expected float32, float16 or bfloat16, got Long; convert it");
}

TEST(MicroscaledMatmul, EqualsDequantizeThenMatmulForEveryModeAndGroup) {
  at::manual_seed(20);
  for_each_kernel([](const Kernel& kernel) {
    for (const Mode mode : kMicroscaledModes) {
      for (const int64_t group : {32, 16, 8, 4, 2}) {
        if (group > mode_info(mode).group_size) continue;
        const auto w = random_microscaled(mode, 13, 96, group);
        const auto values = reference_values(w);
        const auto text = core::join(mode_info(mode).name, " g", group);
        for (const int64_t tokens : {1, 2, 3, 4, 5, 7, 9, 19}) {
          expect_matmul(kernel, w, values, tokens, text);
        }
      }
    }
  });
}

TEST(MicroscaledMatmul, GivesTheSameBitsOnAnyNumberOfThreads) {
  at::manual_seed(21);
  const int before = at::get_num_threads();
  for_each_kernel([](const Kernel& kernel) {
    for (const Mode mode : kMicroscaledModes) {
      const auto w = random_microscaled(mode, 1023, 512);
      for (const int64_t tokens : {1, 33}) {
        const auto x = at::randn({tokens, 512});
        at::set_num_threads(1);
        const auto one = matmul_on(kernel, x, w);
        at::set_num_threads(2);
        EXPECT_TRUE(at::equal(matmul_on(kernel, x, w), one)) << tokens;
      }
    }
  });
  at::set_num_threads(before);
}

TEST(MicroscaledMatmul, TakesTheLargestAndLeastScales) {
  for_each_kernel([](const Kernel& kernel) {
    for (const Mode mode : {Mode::kMxfp4, Mode::kMxfp8}) {
      for (const int scale : {0, 1, 254}) {
        auto w = random_microscaled(mode, 4, 64);
        w.scales.fill_(scale);
        // Elements up to 1, whose products with the largest scale are finite.
        w.packed.bitwise_and_(mode == Mode::kMxfp8 ? 0x87 : 0xAA);
        const auto values = reference_values(w);
        for (const int64_t tokens : {1, 12}) {
          // One input, so that no sum overflows.
          const auto x = at::zeros({tokens, 64});
          x.select(1, 5).fill_(1);
          EXPECT_TRUE(at::equal(matmul_on(kernel, x, w)[0], values.select(1, 5))) << scale;
        }
      }
    }
  });
}

TEST(MicroscaledMatmul, PassesNotANumberOn) {
  for_each_kernel([](const Kernel& kernel) {
    for (const int64_t tokens : {1, 12}) {
      auto w = random_microscaled(Mode::kMxfp8, 3, 64);
      w.packed[1][40] = 0xFF;
      w.scales[2][1] = 255;
      const auto y = matmul_on(kernel, at::ones({tokens, 64}), w);
      EXPECT_FALSE(y[0][0].isnan().item<bool>());
      EXPECT_TRUE(y[0][1].isnan().item<bool>() && y[0][2].isnan().item<bool>());
    }
  });
}

TEST(MicroscaledMatmul, NamesWhatItRefuses) {
  const auto w = random_microscaled(Mode::kNvfp4, 4, 64);
  EXPECT_EQ(message_of<ShapeError>([&] {
              microscaled_matmul(at::randn({2, 32}), w);
            }),
            "quant.microscaled_matmul: x, expected last dimension 64, got [2, 32]; check which "
            "shard of the weight this is");
}

}  // namespace
}  // namespace weft::quant
