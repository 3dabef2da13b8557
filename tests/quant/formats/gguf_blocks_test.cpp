#include "weft/quant/formats/gguf_blocks.h"

#include <utility>

#include "tests/ops/tensor_checks.h"
#include "tests/quant/quant_cases.h"
#include "weft/core/error.h"
#include "weft/quant/kernels/panel_select.h"
#include "weft/quant/panels/gguf_panels.h"
#include "weft/quant/panels/panel_layout.h"
#include "weft/quant/panels/panel_matrix.h"

namespace weft::quant {
namespace {

using core::Dtype;
using core::ShapeError;
using test::Golden;
using test::message_of;

constexpr int64_t kRows = 3;
constexpr int64_t kColumns = 512;

size_t golden_bytes(Dtype dtype) {
  const core::DtypeInfo& type = core::info(dtype);
  return static_cast<size_t>(kRows * kColumns / type.block_elements * type.block_bytes);
}

class GgufBlocks : public ::testing::TestWithParam<Dtype> {
 protected:
  const GgufBlockInfo& info() const { return gguf_block_info(GetParam()); }
  const core::DtypeInfo& type() const { return core::info(GetParam()); }
  Golden golden() const { return Golden(core::join("gguf_", type().name, ".bin")); }
};

TEST_P(GgufBlocks, EqualTheGgufPackagesValues) {
  auto file = golden();
  const auto blocks = file.take_bytes(golden_bytes(GetParam()));
  const auto expected = file.take({kRows, kColumns}, at::kFloat);
  ASSERT_TRUE(file.is_at_end());
  const auto w = from_gguf_blocks(GetParam(), blocks, kRows, kColumns);
  check_affine(w, "gguf");
  EXPECT_EQ(w.bits, info().bits);
  EXPECT_EQ(w.group_size, info().group_size);
  EXPECT_EQ(w.is_symmetric(), info().is_symmetric);
  EXPECT_EQ(w.scales.scalar_type(), info().scale_dtype());
  EXPECT_TRUE(at::equal(dequantize(w, at::kFloat), expected));
}

TEST_P(GgufBlocks, GoStraightIntoPanels) {
  auto file = golden();
  const auto blocks = file.take_bytes(golden_bytes(GetParam()));
  const auto values = file.take({kRows, kColumns}, at::kFloat);
  // Pieces that begin and end within panels, the last of which is not full.
  constexpr int64_t kPieces = 13;
  PanelMatrix panels = empty_gguf_panels(GetParam(), kPieces * kRows, kColumns, 16);
  for (int64_t i = 0; i < kPieces; ++i) {
    write_gguf_rows(GetParam(), blocks, i * kRows, panels);
  }
  EXPECT_EQ(panels.activation_bits, 16);
  EXPECT_TRUE(at::equal(panel_values(panels), values.repeat({kPieces, 1})));
  EXPECT_EQ(panels.form.table, info().table);
  if (info().table != nullptr) return;
  const PanelMatrix decoded = to_panels(from_gguf_blocks(GetParam(), blocks, kRows, kColumns));
  PanelMatrix straight = empty_gguf_panels(GetParam(), kRows, kColumns, 8);
  write_gguf_rows(GetParam(), blocks, 0, straight);
  EXPECT_EQ(straight.form.numbers, decoded.form.numbers);
  EXPECT_EQ(straight.num_bytes(), decoded.num_bytes());
  if (info().has_float_scales) return;
  EXPECT_TRUE(at::equal(straight.data, decoded.data));
}

// Whole numbers up to the largest code, which is in every block, are codes themselves, so nothing
// is rounded, but many rows where the kernel multiplies them and the weights as bfloat16.
TEST_P(GgufBlocks, AreMultipliedInPanelsAsTheirValues) {
  auto file = golden();
  const auto blocks = file.take_bytes(golden_bytes(GetParam()));
  const at::Tensor values = file.take({kRows, kColumns}, at::kFloat).repeat({13, 1});
  for (const auto& [bits, most] : {std::pair(8, 127), std::pair(16, 127 * 128)}) {
    PanelMatrix panels = empty_gguf_panels(GetParam(), 13 * kRows, kColumns, bits);
    for (int64_t i = 0; i < 13; ++i) write_gguf_rows(GetParam(), blocks, i * kRows, panels);
    for (const int64_t tokens : {1, 2, 8, 13, 40}) {
      at::manual_seed(tokens);
      at::Tensor x = at::randint(-most, most + 1, {tokens, kColumns}).to(at::kFloat);
      x.view({tokens, -1, 32}).select(2, 5).fill_(-most);
      for (const auto* kernel : kernels::runnable_panel_kernels()) {
        const bool splits = tokens > PanelInputs::kExactRows && kernel->unpack_codes != nullptr;
        const bool rounds = splits && bits == 8;
        const auto taken = [&](const at::Tensor& t) {
          return (rounds ? t.to(at::kBFloat16) : t).to(at::kDouble);
        };
        weft::test::expect_close(
            panel_matmul_on(*kernel, x, panels), at::matmul(taken(x), taken(values).t()),
            core::join(kernel->name, ", activations of ", bits, ", ", tokens, " tokens"),
            splits && !rounds ? 1e-5 : 1e-6);
      }
    }
  }
}

// As docs/quantization.md says.
TEST(GgufPanels, TakeFewBits) {
  struct Case {
    Dtype dtype;
    double bits;
  };
  for (const auto& [dtype, bits] :
       {Case{Dtype::kIQ4NL, 4.5}, Case{Dtype::kIQ4XS, 4.375}, Case{Dtype::kIQ3S, 4.375},
        Case{Dtype::kIQ3XXS, 4.375}, Case{Dtype::kIQ2S, 3.625}, Case{Dtype::kIQ2XS, 3.625},
        Case{Dtype::kIQ2XXS, 3.375}, Case{Dtype::kIQ1S, 3.375}, Case{Dtype::kIQ1M, 3.625},
        Case{Dtype::kTQ1_0, 2.375}, Case{Dtype::kTQ2_0, 2.375}, Case{Dtype::kMXFP4, 5},
        Case{Dtype::kQ2K, 3.25}, Case{Dtype::kQ3K, 3.625}, Case{Dtype::kQ4K, 4.75},
        Case{Dtype::kQ5K, 5.75}, Case{Dtype::kQ6K, 6.625}, Case{Dtype::kQ5_0, 5.5},
        Case{Dtype::kQ5_1, 6}}) {
    const PanelMatrix panels = empty_gguf_panels(dtype, 16, 512, 8);
    EXPECT_EQ(8 * static_cast<double>(panels.num_bytes()) / (16 * 512), bits)
        << core::info(dtype).name;
  }
}

TEST(GgufPanels, RefuseRowsThatAreNotTheMatrixs) {
  PanelMatrix panels = empty_gguf_panels(Dtype::kQ4_0, 4, 64, 8);
  const std::vector<std::byte> blocks(size_t{72} * 2);
  EXPECT_EQ(message_of<ShapeError>([&] { write_gguf_rows(Dtype::kQ4_0, blocks, 1, panels); }),
            "quant.write_gguf_rows: 144 bytes from row 1, expected whole rows of 36 within 4");
  EXPECT_EQ(message_of<ShapeError>([&] { empty_gguf_panels(Dtype::kQ4K, 4, 64, 8); }),
            "quant.empty_gguf_panels: [4, 64] of Q4_K, expected rows of whole blocks");
}

TEST_P(GgufBlocks, KeepTheirValuesInPanelsOfAboutTheirSize) {
  auto file = golden();
  const auto blocks = file.take_bytes(golden_bytes(GetParam()));
  const auto values = file.take({kRows, kColumns}, at::kFloat);
  const PanelMatrix panels = to_panels(from_gguf_blocks(GetParam(), blocks, kRows, kColumns));
  EXPECT_TRUE(at::equal(panel_values(panels), values));
  // Powers of two have a small common divisor where they are near each other, not here.
  const bool is_power = GetParam() == Dtype::kMXFP4;
  EXPECT_EQ(panels.form.scales, is_power                  ? kernels::PanelScales::kFloat32
                                : info().has_float_scales ? kernels::PanelScales::kInt8
                                                          : kernels::PanelScales::kFloat16);
  if (is_power) return;
  // Bits of a number: its code or, read as the file has it, its index in a table; a byte for each
  // scale or offset, one more for their halves or, with two levels, an eighth for what 256 columns
  // share.
  const double numbers = info().is_symmetric ? 1 : 2,
               group = static_cast<double>(info().group_size);
  const double scales = info().has_float_scales ? 8 / group + 1.0 / 8 : 16 / group;
  const auto bits_of = [](const PanelMatrix& each) {
    return 8 * static_cast<double>(each.num_bytes()) / (16 * kColumns);
  };
  EXPECT_EQ(bits_of(panels), static_cast<double>(info().bits) + numbers * scales);
  EXPECT_EQ(bits_of(empty_gguf_panels(GetParam(), kRows, kColumns, 8)),
            static_cast<double>(info().index_bits()) + numbers * scales);
}

TEST_P(GgufBlocks, OfARanksRowsAndColumnsEqualTheSliceOfTheWhole) {
  auto file = golden();
  const auto blocks = file.take_bytes(golden_bytes(GetParam()));
  const auto values = file.take({kRows, kColumns}, at::kFloat);
  const auto row_bytes = blocks.size() / kRows;
  const auto half = row_bytes / 2;
  const std::span<const std::byte> second(blocks.data() + row_bytes, half);
  const auto part = from_gguf_blocks(GetParam(), second, 1, kColumns / 2);
  EXPECT_TRUE(at::equal(dequantize(part, at::kFloat)[0], values[1].narrow(0, 0, kColumns / 2)));
}

TEST_P(GgufBlocks, RefuseRowsThatCutABlock) {
  const auto message = message_of<ShapeError>(
      [&] { from_gguf_blocks(GetParam(), {}, 2, type().block_elements + 8); });
  EXPECT_EQ(message, core::join("quant.from_gguf_blocks: ", type().name,
                                " matrix, expected rows of whole blocks of ", type().block_elements,
                                " columns, got shape [2, ", type().block_elements + 8,
                                "]; cut between blocks"));
}

TEST_P(GgufBlocks, RefuseAnotherNumberOfBytes) {
  const std::vector<std::byte> blocks(static_cast<size_t>(type().block_bytes) * 2 - 1);
  const auto message = message_of<ShapeError>(
      [&] { from_gguf_blocks(GetParam(), blocks, 2, type().block_elements); });
  EXPECT_EQ(message,
            core::join("quant.from_gguf_blocks: ", type().name, " blocks of a [2, ",
                       type().block_elements, "] matrix, expected ", type().block_bytes * 2,
                       " bytes, got ", blocks.size(), "; check the shape"));
}

// All that core's table calls blocks.
std::vector<Dtype> all_blocks() {
  std::vector<Dtype> dtypes;
  for (int i = 0; i <= static_cast<int>(Dtype::kMXFP4); ++i) {
    if (core::info(static_cast<Dtype>(i)).is_block()) dtypes.push_back(static_cast<Dtype>(i));
  }
  return dtypes;
}

INSTANTIATE_TEST_SUITE_P(AllKinds, GgufBlocks, ::testing::ValuesIn(all_blocks()),
                         [](const auto& info) { return std::string(core::info(info.param).name); });

TEST(GgufBlockInfo, RefusesTypesThatAreNoBlocks) {
  EXPECT_EQ(message_of<core::InternalError>([] { gguf_block_info(Dtype::kF16); }),
            "quant: F16 is no block type of GGUF that weft reads");
}

TEST(GgufBlockSize, RefusesShapesWhoseBytesOverflow) {
  const auto message = message_of<ShapeError>(
      [] { from_gguf_blocks(Dtype::kQ8_0, {}, int64_t{1} << 40, int64_t{1} << 40); });
  EXPECT_NE(message.find("more than fit in memory"), std::string::npos) << message;
}

}  // namespace
}  // namespace weft::quant
