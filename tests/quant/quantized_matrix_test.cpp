#include "weft/quant/quantized_matrix.h"

#include "tests/quant/quant_cases.h"
#include "weft/core/error.h"

namespace weft::quant {
namespace {

using test::message_of;

/// Every mode, and affine in a few forms.
std::vector<Scheme> schemes() {
  return {{Mode::kAffine, 4, 64},
          {Mode::kAffine, 3, 32, at::kBFloat16},
          {Mode::kMxfp4, 4, 32},
          {Mode::kMxfp8, 8, 32},
          {Mode::kNvfp4, 4, 16}};
}

std::vector<std::string> part_names(QuantizedMatrix w) {
  std::vector<std::string> names;
  for (const QuantizedPart& part : parts_of(w)) names.emplace_back(part.name);
  return names;
}

TEST(QuantizedMatrix, IsWhatItsSchemeSays) {
  at::manual_seed(25);
  const auto dense = at::randn({5, 128});
  for (const Scheme& scheme : schemes()) {
    SCOPED_TRACE(scheme_text(scheme));
    const QuantizedMatrix w = quantize(dense, scheme);
    check_quantized(w, "here");
    EXPECT_EQ(scheme_of(w), scheme);
    EXPECT_EQ(out_features(w), 5);
    EXPECT_EQ(in_features(w), 128);
    EXPECT_EQ(group_size(w), scheme.group_size);
    const auto values = dequantize(w, at::kFloat);
    EXPECT_LT(((values - dense).norm() / dense.norm()).item<double>(), 0.25);
    const auto x = at::randn({3, 128});
    EXPECT_TRUE(at::allclose(matmul(x, w), at::matmul(x, values.t()), 1e-4, 1e-4));
    EXPECT_TRUE(at::equal(rows(w, at::tensor({4, 1}, at::kLong)),
                          values.index({at::tensor({4, 1}, at::kLong)})));
  }
}

TEST(QuantizedMatrix, NamesItsParts) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(part_names(test::random_affine({4, 32}, 2, 64)),
            (Names{"packed", "scales", "offsets"}));
  EXPECT_EQ(part_names(test::random_affine({4, 32, at::kHalf, true}, 2, 64)),
            (Names{"packed", "scales"}));
  EXPECT_EQ(part_names(test::random_microscaled(Mode::kMxfp8, 2, 64)), (Names{"packed", "scales"}));
}

TEST(QuantizedMatrix, CountsTheBytesOfItsParts) {
  EXPECT_EQ(num_bytes(test::random_affine({4, 32, at::kHalf}, 10, 64)), 10 * (32 + 4 + 4));
  EXPECT_EQ(num_bytes(test::random_microscaled(Mode::kMxfp4, 10, 64)), 10 * (32 + 2));
}

TEST(QuantizedMatrix, RefusesSchemesThatDoNotExist) {
  EXPECT_EQ(message_of<core::ConfigError>([] {
              quantize(at::randn({2, 64}), {Mode::kNvfp4, 4, 32});
            }),
            "quant.quantize: nvfp4, expected 4 bits in groups of 16, got 4 bits in groups of 32; "
            "leave both out, or use mode affine");
}

}  // namespace
}  // namespace weft::quant
