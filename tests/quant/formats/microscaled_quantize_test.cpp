#include <limits>

#include "tests/quant/quant_cases.h"
#include "weft/core/error.h"
#include "weft/quant/formats/microscaled.h"

namespace weft::quant {
namespace {

using core::ShapeError;
using test::Golden;
using test::kMicroscaledModes;
using test::message_of;

constexpr int64_t kMicroscaledRows = 6;
constexpr int64_t kMicroscaledColumns = 128;

TEST(QuantizeMicroscaled, EqualsMlxBitForBit) {
  for (const Mode mode : kMicroscaledModes) {
    const ModeInfo& info = mode_info(mode);
    SCOPED_TRACE(info.name);
    Golden golden(core::join("mlx_", info.name, ".bin"));
    const auto w = golden.take({kMicroscaledRows, kMicroscaledColumns}, at::kFloat);
    MicroscaledTensor expected;
    expected.mode = mode;
    expected.group_size = info.group_size;
    expected.packed =
        golden.take({kMicroscaledRows, kMicroscaledColumns * info.bits / 8}, at::kByte);
    expected.scales =
        golden.take({kMicroscaledRows, kMicroscaledColumns / info.group_size}, at::kByte);
    const auto values = golden.take({kMicroscaledRows, kMicroscaledColumns}, at::kFloat);
    ASSERT_TRUE(golden.is_at_end());
    const auto actual = quantize_microscaled(w, mode);
    EXPECT_TRUE(at::equal(actual.packed, expected.packed));
    EXPECT_TRUE(at::equal(actual.scales, expected.scales));
    EXPECT_TRUE(at::equal(dequantize(expected, at::kFloat), values));
  }
}

TEST(QuantizeMicroscaled, GivesItsOwnValuesBack) {
  at::manual_seed(23);
  for (const Mode mode : kMicroscaledModes) {
    // The largest element of a group stays the largest of its format, or half of it.
    const auto once = quantize_microscaled(at::randn({9, 96}), mode);
    const auto values = dequantize(once, at::kFloat);
    EXPECT_TRUE(at::equal(dequantize(quantize_microscaled(values, mode), at::kFloat), values))
        << mode_info(mode).name;
  }
}

TEST(QuantizeMicroscaled, TakesAnyFloatingTypeAndStrides) {
  const auto w = at::randn({64, 8}).to(at::kBFloat16);
  for (const Mode mode : kMicroscaledModes) {
    const auto expected = quantize_microscaled(w.t().to(at::kFloat).contiguous(), mode);
    EXPECT_TRUE(at::equal(quantize_microscaled(w.t(), mode).packed, expected.packed));
  }
}

TEST(QuantizeMicroscaled, NamesWhatItRefuses) {
  const auto message = [](const at::Tensor& w, Mode mode) {
    return message_of<ShapeError>([&] { quantize_microscaled(w, mode); });
  };
  EXPECT_EQ(message(at::randn({2, 48}), Mode::kMxfp4),
            "quant.quantize_microscaled: group size, expected a divisor of the 48 columns, got 32; "
            "use another group size");
  EXPECT_EQ(message(at::randn({2, 64}), Mode::kAffine),
            "quant.quantize_microscaled: mode, expected mxfp4, mxfp8 or nvfp4, got affine; use "
            "quantize_affine");
  auto w = at::randn({2, 64});
  w[1][3] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(message(w, Mode::kMxfp8),
            "quant.quantize_microscaled: w[1, 3], expected a finite number, got inf; look for the "
            "step that made it");
}

}  // namespace
}  // namespace weft::quant
