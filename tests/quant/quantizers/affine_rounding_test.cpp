// Folders' affine matrices out of numbers: the formats' own rules, and what searched scales and
// feedback lose less than these.
#include "weft/quant/quantizers/affine_rounding.h"

#include <ATen/Parallel.h>

#include <cmath>

#include "tests/core/error_text.h"
#include "tests/quant/quant_cases.h"
#include "weft/core/error.h"
#include "weft/quant/integers/packed_words.h"
#include "weft/quant/integers/scaled_integers.h"
#include "weft/quant/quantizers/feedback.h"
#include "weft/quant/quantizers/gguf_quantize.h"

namespace weft::quant {
namespace {

using core::ShapeError;
using test::Golden;
using test::message_of;

std::string text_of(const AffineForm& form) {
  const char* kinds[] = {"any", "zero points", "middle"};
  return std::to_string(form.bits) + " bits, group " + std::to_string(form.group_size) + ", " +
         c10::toString(form.scale_dtype) + ", " + kinds[static_cast<int>(form.offsets)];
}

std::vector<AffineForm> forms() {
  std::vector<AffineForm> all;
  for (const Offsets offsets : {Offsets::kAny, Offsets::kZeroPoints, Offsets::kMiddle}) {
    for (const auto type : {at::kFloat, at::kHalf, at::kBFloat16}) {
      all.push_back({4, 32, type, offsets});
      all.push_back({4, 128, type, offsets});
    }
    all.push_back({3, 64, at::kBFloat16, offsets});
    all.push_back({8, 64, at::kHalf, offsets});
  }
  return all;
}

// The parts as compressed-tensors stores them, read by the reader of its files.
at::Tensor read_again(const AffineTensor& w) {
  ScaledIntegers stored{w.bits, w.packed, w.scales, {}};
  if (w.offsets.defined()) stored.zeros = words_of_columns(zero_points(w), w.bits);
  return dequantize(from_scaled_integers(stored, w.group_size), at::kFloat);
}

at::Tensor values_of(const AffineTensor& w) { return dequantize(w, at::kFloat); }

TEST(AffineRounding, InRangeIsWhatCompressedTensorsMakes) {
  for (const auto& [bits, group] : {std::pair<int64_t, int64_t>{4, 32}, {8, 64}}) {
    for (const bool is_symmetric : {true, false}) {
      Golden file("compressed_b" + std::to_string(bits) + "_g" + std::to_string(group) +
                  (is_symmetric ? "_sym.bin" : "_asym.bin"));
      const at::Tensor w = file.take({16, 128}, at::kFloat);
      const Offsets offsets = is_symmetric ? Offsets::kMiddle : Offsets::kZeroPoints;
      const AffineTensor rounded = round_in_range(w, {bits, group, at::kFloat, offsets});
      const at::Tensor packed = file.take({16, 128 * bits / 32}, at::kInt);
      EXPECT_TRUE(at::equal(rounded.packed.view(at::kInt), packed)) << bits << is_symmetric;
      EXPECT_TRUE(at::equal(rounded.scales, file.take({16, 128 / group}, at::kFloat)));
      if (!is_symmetric) {
        const at::Tensor zeros = file.take({bits / 2, 128 / group}, at::kInt);
        EXPECT_TRUE(at::equal(words_of_columns(zero_points(rounded), bits), zeros)) << bits;
      }
      const at::Tensor values = file.take({16, 128}, at::kFloat);
      // scale * code + offset rounds by what these are, not by what is left of them.
      const double rounding = std::ldexp(rounded.scales.max().item<double>(), bits - 23);
      EXPECT_TRUE(at::allclose(values_of(rounded), values, 1e-6, rounding));
      EXPECT_TRUE(at::allclose(read_again(rounded), values, 1e-6, rounding));
      ASSERT_TRUE(file.is_at_end());
    }
  }
}

// By the error that importances count, searched scales lose less than a group's range does; by that
// of the product, feedback loses less than these.
TEST(AffineRounding, SearchAndFeedbackLoseLess) {
  at::manual_seed(5);
  const at::Tensor mix = at::randn({256, 256}) / 16 + at::randn({1, 256});
  const at::Tensor x = at::randn({1024, 256}).matmul(mix);
  const at::Tensor products = x.t().matmul(x) / 1024;
  const at::Tensor importance = products.diagonal().contiguous();
  const at::Tensor w = at::randn({32, 256}) * at::rand({32, 1}).exp();
  const at::Tensor weights = error_weights(w, importance);
  const at::Tensor factor = feedback_factor(products, 0.01);
  for (const AffineForm& form : forms()) {
    const auto values = [&](const AffineTensor& affine) {
      EXPECT_TRUE(at::equal(affine.scales.to(form.scale_dtype).to(affine.scales.scalar_type()),
                            affine.scales))
          << text_of(form);
      const at::Tensor numbers = values_of(affine);
      if (form.offsets != Offsets::kAny && form.bits != 3) {
        EXPECT_TRUE(at::allclose(read_again(affine), numbers, 1e-6, 1e-7)) << text_of(form);
      }
      return numbers;
    };
    const at::Tensor plain = values(round_in_range(w, form));
    const at::Tensor fitted = values(fit_affine(w, form, importance));
    const at::Tensor fed = values(fit_affine_with_feedback(w, form, factor));
    const auto lost = [&](const at::Tensor& rounded) {
      return ((rounded - w).square() * weights).sum().item<double>();
    };
    const auto lost_product = [&](const at::Tensor& rounded) {
      return x.matmul((rounded - w).t()).square().sum().item<double>();
    };
    EXPECT_LT(lost(fitted), (form.bits == 8 ? 1.0 : 0.95) * lost(plain)) << text_of(form);
    EXPECT_LT(lost_product(fed), 0.7 * lost_product(fitted)) << text_of(form);
  }
}

TEST(AffineRounding, KeepsZerosAndDoesNotDependOnThreads) {
  at::manual_seed(6);
  const at::Tensor w = at::randn({24, 128});
  const at::Tensor factor = feedback_factor(at::eye(128), 0.01);
  const int threads = at::get_num_threads();
  for (const AffineForm& form : forms()) {
    const auto all = [&](const at::Tensor& numbers) {
      return std::vector<AffineTensor>{round_in_range(numbers, form), fit_affine(numbers, form, {}),
                                       fit_affine_with_feedback(numbers, form, factor)};
    };
    for (const AffineTensor& zeros : all(at::zeros({2, 128}))) {
      EXPECT_TRUE(at::equal(values_of(zeros), at::zeros({2, 128}))) << text_of(form);
    }
    at::set_num_threads(3);
    const auto many = all(w);
    at::set_num_threads(1);
    const auto one = all(w);
    at::set_num_threads(threads);
    for (size_t i = 0; i < many.size(); ++i) {
      EXPECT_TRUE(at::equal(many[i].packed, one[i].packed)) << text_of(form);
      EXPECT_TRUE(at::equal(many[i].scales, one[i].scales)) << text_of(form);
    }
  }
}

TEST(AffineRounding, RefusesWhatItCannotRound) {
  const at::Tensor w = at::ones({1, 256});
  const auto error = [](const at::Tensor& numbers, const AffineForm& form) {
    return message_of<ShapeError>([&] { fit_affine(numbers, form, {}); });
  };
  for (const int64_t size : {256, 12}) {
    EXPECT_EQ(error(w, {4, size}),
              "quant.round_affine: group size, expected a multiple of 8 up to 128, got " +
                  std::to_string(size));
  }
  EXPECT_EQ(error(w * 1e30, {4, 64, at::kHalf}),
            "quant.round_affine: w, expected numbers whose scales the type of scales holds, got "
            "larger ones; use float32 or bfloat16 scales");
  EXPECT_EQ(message_of<ShapeError>([&] {
              fit_affine_with_feedback(w, {}, at::ones({2, 2}));
            }),
            "quant.round_affine: factor, expected [256, 256], got [2, 2]");
  EXPECT_EQ(message_of<ShapeError>([&] { fit_affine(w, {}, at::ones({2})); }),
            "quant.round_affine: importance, expected float32 [256], got Float [2]");
}

}  // namespace
}  // namespace weft::quant
