#include "weft/quant/formats/microscaled.h"

#include "tests/quant/quant_cases.h"
#include "weft/core/error.h"
#include "weft/quant/view.h"

namespace weft::quant {
namespace {

using core::ShapeError;
using test::kMicroscaledModes;
using test::message_of;
using test::random_microscaled;
using test::reference_values;

std::string microscaled_message(const MicroscaledTensor& w) {
  return message_of<ShapeError>([&] { check_microscaled(w, "loader: q_proj"); });
}

TEST(CheckMicroscaled, AcceptsWhatQuantizeMakes) {
  for (const Mode mode : kMicroscaledModes) {
    EXPECT_NO_THROW(check_microscaled(quantize_microscaled(at::randn({3, 64}), mode), "here"));
  }
}

TEST(CheckMicroscaled, NamesWhatDoesNotFit) {
  auto w = random_microscaled(Mode::kMxfp4, 2, 64);
  w.mode = Mode::kAffine;
  EXPECT_EQ(microscaled_message(w),
            "loader: q_proj: mode, expected mxfp4, mxfp8 or nvfp4, got affine; make an "
            "AffineTensor");
  w.mode = Mode::kNvfp4;
  EXPECT_EQ(microscaled_message(w),
            "loader: q_proj: group size, expected a divisor of 16, that of nvfp4, got 32; check "
            "the mode");
  w.mode = Mode::kMxfp8;
  EXPECT_EQ(microscaled_message(w),
            "loader: q_proj: scales, expected shape [2, 1] (quant groups of 32 along 32 columns), "
            "got [2, 2]; check the group size");
  w = random_microscaled(Mode::kMxfp4, 2, 64);
  w.scales = w.scales.to(at::kHalf);
  EXPECT_EQ(microscaled_message(w),
            "loader: q_proj: scales, expected uint8, got Half; check the mode");
  w.scales = at::Tensor();
  EXPECT_EQ(microscaled_message(w), "loader: q_proj: scales, expected a tensor, got none; set it");
}

TEST(MicroscaledTensor, CountsTheBytesOfAllParts) {
  EXPECT_EQ(random_microscaled(Mode::kMxfp4, 10, 64).num_bytes(), 10 * (32 + 2));
  EXPECT_EQ(random_microscaled(Mode::kMxfp8, 10, 64).num_bytes(), 10 * (64 + 2));
  EXPECT_EQ(random_microscaled(Mode::kNvfp4, 10, 64).num_bytes(), 10 * (32 + 4));
}

TEST(MicroscaledDequantize, EveryKernelGivesTheBitsOfTheReference) {
  at::manual_seed(22);
  test::for_each_kernel([](const kernels::Kernel& kernel) {
    for (const Mode mode : kMicroscaledModes) {
      for (const int64_t group : {32, 16, 8, 2}) {
        if (group > mode_info(mode).group_size) continue;
        const auto w = random_microscaled(mode, 5, 96, group);
        const auto view = view_of(w);
        const auto values = at::empty({5, 96});
        std::vector<std::byte> scratch(static_cast<size_t>(kernels::scratch_bytes(view)));
        kernel.dequantize(view, {values.mutable_data_ptr<float>(), 96, {0, 5}}, scratch.data());
        EXPECT_TRUE(at::equal(values, reference_values(w))) << mode_info(mode).name << group;
      }
    }
  });
}

/// All codes under all scales.
MicroscaledTensor every_combination(Mode mode) {
  MicroscaledTensor w;
  w.mode = mode;
  w.group_size = mode_info(mode).group_size;
  const auto codes = at::arange(256, at::kByte);
  w.packed = codes.repeat({256, 1}).contiguous();
  const int64_t groups = w.in_features() / w.group_size;
  w.scales = codes.unsqueeze(1).repeat({1, groups}).contiguous();
  return w;
}

TEST(MicroscaledDequantize, EqualsTheReferenceForEveryCodeAndScale) {
  for (const Mode mode : kMicroscaledModes) {
    const auto w = every_combination(mode);
    const auto expected = reference_values(w), actual = dequantize(w, at::kFloat);
    EXPECT_TRUE(at::equal(actual.isnan(), expected.isnan())) << mode_info(mode).name;
    EXPECT_TRUE(at::equal(actual.nan_to_num(0), expected.nan_to_num(0))) << mode_info(mode).name;
  }
}

TEST(MicroscaledDequantize, RoundsOnceToHalfTypes) {
  const auto w = random_microscaled(Mode::kMxfp8, 3, 64);
  for (const auto dtype : {at::kHalf, at::kBFloat16}) {
    EXPECT_TRUE(at::equal(dequantize(w, dtype), reference_values(w).to(dtype)));
  }
}

TEST(MicroscaledRows, TakesRowsByNumberInAnyShape) {
  const auto w = random_microscaled(Mode::kNvfp4, 11, 48);
  const auto indices = at::randint(11, {2, 3}, at::kLong);
  EXPECT_TRUE(at::equal(microscaled_rows(w, indices), reference_values(w).index({indices})));
  EXPECT_EQ(message_of<ShapeError>([&] { microscaled_rows(w, at::full({1}, 11, at::kLong)); }),
            "quant.microscaled_rows: index, expected 0 to 10, got 11; check the vocabulary size");
}

}  // namespace
}  // namespace weft::quant
