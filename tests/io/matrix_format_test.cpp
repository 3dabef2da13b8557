#include "weft/io/matrices/matrix_format.h"

#include <gtest/gtest.h>

#include "tests/core/temp_dir.h"
#include "tests/io/gguf_builder.h"
#include "tests/io/views/plan_fixture.h"
#include "weft/core/error.h"
#include "weft/io/matrices/column_order.h"
#include "weft/io/matrix_rules.h"

namespace weft::io {
namespace {

using core::join;
using testing::error_text;
using testing::NamedType;
using testing::PlanFile;
using testing::replaced;

MatrixFormat format_of(const std::vector<NamedType>& tensors, int64_t out, int64_t in) {
  const PlanFile file(tensors);
  return matrix_format(file.file(), {"w", out, in, 0});
}

std::string error_of(const std::vector<NamedType>& tensors, int64_t out, int64_t in,
                     int64_t stack = 0) {
  const PlanFile file(tensors);
  return replaced(error_text([&] {
                    matrix_format(file.file(), {"w", out, in, stack});
                  }),
                  file.file().path(), "FILE");
}

// "tensor along [out dim/per, in dim/per]" for each part.
std::string parts_text(const MatrixFormat& format) {
  std::string text;
  for (const MatrixPart& part : format.parts) {
    text += join(text.empty() ? "" : " ", part.tensor, ":", part.out_dim, "/", part.per_out, ",",
                 part.in_dim, "/", part.per_in);
  }
  return text;
}

TEST(MatrixFormat, RecognizesEachKindByNamesTypesAndShapes) {
  const MatrixFormat dense = format_of({{"w.weight", Dtype::kBF16, {6, 4}}}, 6, 4);
  EXPECT_EQ(dense.text, "BF16");
  EXPECT_EQ(dense.in_unit, 1);
  for (const int64_t bits : {2, 3, 4, 5, 6, 8}) {
    const MatrixFormat affine = format_of({{"w.weight", Dtype::kU32, {6, 128 * bits / 32}},
                                           {"w.scales", Dtype::kF16, {6, 2}},
                                           {"w.biases", Dtype::kF16, {6, 2}}},
                                          6, 128);
    EXPECT_EQ(affine.text, join("affine ", bits, "-bit g64"));
    EXPECT_EQ(affine.in_unit, 64);
    EXPECT_EQ(parts_text(affine), "w.weight:0/1,1/1 w.scales:0/1,1/64 w.biases:0/1,1/64");
  }
  struct Float {
    const char* text;
    int64_t bits, group;
  };
  for (const Float& mode : {Float{"mxfp4", 4, 32}, Float{"mxfp8", 8, 32}, Float{"nvfp4", 4, 16}}) {
    const MatrixFormat format = format_of({{"w.weight", Dtype::kU32, {6, 64 * mode.bits / 32}},
                                           {"w.scales", Dtype::kU8, {6, 64 / mode.group}}},
                                          6, 64);
    EXPECT_EQ(format.text, mode.text);
    EXPECT_EQ(format.in_unit, mode.group);
  }
}

TEST(MatrixFormat, TellsAwqFromGptqByWhatIsPacked) {
  const NamedType zeros{"w.qzeros", Dtype::kI32, {2, 3}}, scales{"w.scales", Dtype::kF16, {2, 24}};
  const MatrixFormat awq = format_of({{"w.qweight", Dtype::kI32, {64, 3}}, zeros, scales}, 24, 64);
  EXPECT_EQ(awq.text, "awq 4-bit g32");
  EXPECT_EQ(awq.out_unit, 8);
  EXPECT_EQ(parts_text(awq), "w.qweight:1/8,0/1 w.qzeros:1/8,0/32 w.scales:1/1,0/32");
  const MatrixFormat gptq = format_of(
      {{"w.qweight", Dtype::kI32, {8, 24}}, zeros, scales, {"w.g_idx", Dtype::kI32, {64}}}, 24, 64);
  EXPECT_EQ(gptq.text, "gptq 4-bit g32");
  EXPECT_EQ(parts_text(gptq),
            "w.qweight:1/1,0/8 w.qzeros:1/8,0/32 w.scales:1/1,0/32 w.g_idx:-1/1,0/1");
}

// "tensor: counts, rows and columns that share a scale".
std::string scales_text(const MatrixFormat& format) {
  const ScaleGrid& grid = format.scales;
  return join(grid.tensor, ": ", grid.out_count, "x", grid.in_count, " of ", grid.per_out, "x",
              grid.per_in);
}

TEST(MatrixFormat, RecognizesFloatsOfEightBitsByTheirScales) {
  struct Case {
    const char* suffix;
    std::vector<int64_t> shape;
    const char* scales;
  };
  for (const Case& each : {Case{"_scale_inv", {3, 2}, "w.weight_scale_inv: 3x2 of 128x128"},
                           Case{"_scale_inv", {6, 4}, "w.weight_scale_inv: 6x4 of 50x64"},
                           // Neither equal blocks nor the usual ones: config.json must say it.
                           Case{"_scale_inv", {7, 4}, "w.weight_scale_inv: 7x4 of 0x64"},
                           Case{"_scale", {300, 1}, "w.weight_scale: 300x1 of 1x256"},
                           Case{"_scale", {300}, "w.weight_scale: 300x1 of 1x256"},
                           Case{"_scale", {1}, "w.weight_scale: 1x1 of 300x256"},
                           Case{"_scale", {}, "w.weight_scale: 1x1 of 300x256"}}) {
    const MatrixFormat format =
        format_of({{"w.weight", Dtype::kF8E4M3, {300, 256}},
                   {join("w.weight", each.suffix), Dtype::kF32, each.shape}},
                  300, 256);
    EXPECT_EQ(format.kind, MatrixKind::kScaledFloats);
    EXPECT_EQ(scales_text(format), each.scales);
    EXPECT_EQ(format.text, "F8_E4M3");
    // Any element may be the first of a cut.
    EXPECT_EQ(parts_text(format), "w.weight:0/1,1/1");
    EXPECT_EQ(format.in_unit * format.out_unit, 1);
  }
}

TEST(MatrixFormat, RefusesFloatsOfEightBitsWithoutFittingScales) {
  const NamedType weight{"w.weight", Dtype::kF8E4M3, {6, 4}};
  EXPECT_EQ(error_of({weight}, 6, 4),
            "FormatError: FILE: tensor 'w.weight': F8_E4M3 without scales, expected "
            "'w.weight_scale_inv' or 'w.weight_scale'; get the whole checkpoint");
  EXPECT_EQ(error_of({weight}, 6, 5),
            "FormatError: FILE: tensor 'w.weight': shape [6, 4], expected [6, 5]; the file and the "
            "model's config disagree");
  EXPECT_EQ(error_of({{"w.weight", Dtype::kF8E5M2, {6, 4}}}, 6, 4),
            "FormatError: FILE: tensor 'w.weight': type F8_E5M2, expected F8_E4M3 of the types of "
            "8 bits");
  const auto error_with = [&](Dtype dtype, const std::vector<int64_t>& shape, int64_t stack = 0) {
    const NamedType stacked{"w.weight", Dtype::kF8E4M3, {3, 6, 4}};
    return error_of({stack > 0 ? stacked : weight, {"w.weight_scale", dtype, shape}}, 6, 4, stack);
  };
  const std::string begin = "FormatError: FILE: tensor 'w.weight_scale': ";
  const std::string end = " of a matrix of [6, 4], expected one, one a row or one for each block";
  EXPECT_EQ(error_with(Dtype::kF64, {6, 1}), begin + "F64 scales, expected F32, F16 or BF16");
  for (const std::vector<int64_t>& shape :
       std::vector<std::vector<int64_t>>{{7, 1}, {6, 5}, {0, 1}, {6, 1, 1}}) {
    EXPECT_EQ(error_with(Dtype::kF32, shape), begin + "scales " + core::list_text(shape) + end);
  }
  EXPECT_EQ(error_with(Dtype::kF32, {2, 6, 1}, 3), begin + "scales [2, 6, 1]" + end);
  EXPECT_EQ(error_with(Dtype::kBF16, {3, 6, 1}, 3), "no error");
}

TEST(MatrixFormat, RefusesPartsThatDontFit) {
  const NamedType words{"w.weight", Dtype::kU32, {6, 16}};
  const NamedType scales{"w.scales", Dtype::kF16, {6, 2}};
  EXPECT_EQ(error_of({{"w.weight", Dtype::kF32, {6, 4}}}, 6, 5),
            "FormatError: FILE: tensor 'w.weight': shape [6, 4], expected [6, 5]; the file and the "
            "model's config disagree");
  EXPECT_EQ(error_of({{"w.weight", Dtype::kF32, {6, 4}}}, 6, 4, 8),
            "FormatError: FILE: tensor 'w.weight': shape [6, 4], expected [8, 6, 4]; the file and "
            "the model's config disagree");
  EXPECT_EQ(
      error_of({{"w.weight", Dtype::kI64, {6, 4}}}, 6, 4),
      "FormatError: FILE: tensor 'w.weight': type I64, expected a floating or quantized type");
  EXPECT_EQ(error_of({words}, 6, 128).find("FormatError: FILE: missing tensor 'w.scales'"), 0u);
  EXPECT_EQ(error_of({words, scales}, 6, 128).find("FormatError: FILE: missing tensor 'w.biases'"),
            0u);
  EXPECT_EQ(error_of({words, scales, {"w.biases", Dtype::kBF16, {6, 2}}}, 6, 128),
            "FormatError: FILE: tensor 'w.biases': BF16 biases with F16 scales, expected one type");
  EXPECT_EQ(error_of({words, {"w.scales", Dtype::kF16, {6, 3}}}, 6, 128),
            "FormatError: FILE: tensor 'w.weight': packed [6, 16] with scales [6, 3], expected a "
            "quantized matrix of [6, 128]");
  EXPECT_EQ(error_of({words, {"w.scales", Dtype::kF16, {5, 2}}}, 6, 128),
            "FormatError: FILE: tensor 'w.scales': shape [5, 2], expected [6, 2]; the file and the "
            "model's config disagree");
  EXPECT_EQ(error_of({words, {"w.scales", Dtype::kI32, {6, 2}}, {"w.biases", Dtype::kI32, {6, 2}}},
                     6, 128),
            "FormatError: FILE: tensor 'w.scales': I32 scales, expected F32, F16 or BF16");
  EXPECT_EQ(error_of({words, {"w.scales", Dtype::kU8, {6, 2}}}, 6, 128),
            "FormatError: FILE: tensor 'w.weight': 4-bit floats in quant groups of 64, expected "
            "mxfp4 (4, 32), mxfp8 (8, 32) or nvfp4 (4, 16)");
  EXPECT_EQ(
      error_of({{"w.weight", Dtype::kU32, {6, 28}}, scales, {"w.biases", Dtype::kF16, {6, 2}}}, 6,
               128),
      "FormatError: FILE: tensor 'w.weight': 7-bit values, expected 2, 3, 4, 5, 6 or 8 bits");
}

TEST(MatrixFormat, RefusesAwqAndGptqPartsThatDontFit) {
  const NamedType weight{"w.qweight", Dtype::kI32, {64, 3}};
  const NamedType zeros{"w.qzeros", Dtype::kI32, {2, 3}}, scales{"w.scales", Dtype::kF16, {2, 24}};
  EXPECT_EQ(error_of({weight, zeros, scales}, 32, 64),
            "FormatError: FILE: tensor 'w.qweight': packed [64, 3] with scales [2, 24], expected a "
            "4-bit AWQ matrix of [32, 64]");
  EXPECT_EQ(error_of({weight, {"w.qzeros", Dtype::kI32, {2, 4}}, scales}, 24, 64),
            "FormatError: FILE: tensor 'w.qzeros': shape [2, 4], expected [2, 3]; the file and the "
            "model's config disagree");
  EXPECT_EQ(
      error_of({{"w.qweight", Dtype::kI32, {8, 24}}, zeros, scales, {"w.g_idx", Dtype::kI64, {64}}},
               24, 64),
      "FormatError: FILE: tensor 'w.g_idx': I64 [64], expected I32 [64]");
  EXPECT_EQ(error_of({weight, zeros, scales, {"w.g_idx", Dtype::kI32, {64}}}, 24, 64),
            "FormatError: FILE: tensor 'w.g_idx': expected none beside an AWQ matrix");
}

// Every part of a matrix is cut where the others are, with its own steps.
TEST(MatrixRules, CutEachPartAtTheSameElements) {
  const PlanFile file({{"f.weight", Dtype::kU32, {6, 36}},
                       {"f.scales", Dtype::kF16, {6, 3}},
                       {"f.biases", Dtype::kF16, {6, 3}}});
  DimSplit split;
  split.size = 384;
  split.unit = 128;
  split.fine_unit = 8;
  ShardInfo info;
  info.params = matrix_rules("m", matrix_format(file.file(), {"f", 6, 384, 0}), {}, Cut::kColumns,
                             &split, -1);
  EXPECT_EQ(to_json(info),
            R"({"format":"weft.shard_info","others":"replicate","params":{)"
            R"("m.biases":{"from":["f.biases"],"steps":[["shard",1,128,8,128,128]]},)"
            R"("m.scales":{"from":["f.scales"],"steps":[["shard",1,128,8,128,128]]},)"
            R"("m.weight":{"from":["f.weight"],"steps":[["as_bits",3],["shard",1,128,8,1,128]]}},)"
            R"("version":1})");
  for (const int64_t n : {1, 2, 3, 5, 8}) {
    const ShardPlan plan = ShardPlan::make(file.file(), info, n, {});
    const shard::Layout layout = split.layout(n, "test");
    for (int64_t rank = 0; rank < n; ++rank) {
      const auto covers = covering(layout.of(rank), 128);
      const int64_t columns = shard::total_length(covers);
      EXPECT_EQ(plan.find("m.weight")->of(rank).result.size(1), columns);
      EXPECT_EQ(plan.find("m.scales")->of(rank).result.size(1), columns / 128);
    }
  }
}

// A matrix of six rows in blocks of 32.
std::shared_ptr<const TensorFile> write_blocks(const testing::TempDir& dir, uint64_t columns) {
  constexpr uint32_t kQ8 = 8;
  testing::GgufBuilder builder;
  const uint64_t bytes = 6 * columns / 32 * 34;
  builder.tensors.push_back({"f.weight", {columns, 6}, kQ8, std::string(bytes, '\0')});
  return TensorFile::open(dir.write("blocks.gguf", builder.build()));
}

// Runs of 16 columns, of which blocks of 32 hold two: 4 heads, two to a tile.
const MatrixOrder kTiles = {{}, {{0, 16}, {32, 16}, {16, 16}, {48, 16}}};

TEST(MatrixRules, ReadColumnsThatAFileHasInAnotherOrder) {
  DimSplit split;
  split.kind = DimSplit::Kind::kSegments;
  split.size = 64;
  split.segments = {64};
  split.num_runs = 2;
  const PlanFile plain({{"f.weight", Dtype::kF32, {6, 64}}});
  ShardInfo info;
  info.params = matrix_rules("m", matrix_format(plain.file(), {"f", 6, 64, 0}), kTiles,
                             Cut::kColumns, &split, -1);
  EXPECT_EQ(to_json(info), R"({"format":"weft.shard_info","others":"replicate","params":{)"
                           R"("m.weight":{"from":["f.weight"],"steps":[)"
                           R"(["ranges",1,[0,32,16,48],[16,16,16,16]],)"
                           R"(["shard_segment_runs",1,[64],2]]}},"version":1})");
  const std::vector<shard::Range> second = {{32, 32}};
  EXPECT_EQ(within_stored_runs(second, kTiles.columns, 1), second);
  EXPECT_EQ(within_stored_runs(second, kTiles.columns, 16), second);
  // Of blocks of 32 each run has one, which is read for both of its halves.
  const testing::TempDir dir;
  const auto blocks = write_blocks(dir, 64);
  info.params =
      matrix_rules("m", matrix_format(*blocks, {"f", 6, 64, 0}), kTiles, Cut::kColumns, &split, -1);
  const ShardPlan plan = ShardPlan::make(*blocks, info, 2, {});
  EXPECT_EQ(plan.find("m.weight")->of(1).result.shape(), (std::vector<int64_t>{6, 64}));
  EXPECT_EQ(within_stored_runs(second, kTiles.columns, 32),
            (std::vector<shard::Range>{{64 + 16, 16}, {96 + 16, 16}}));
}

TEST(MatrixRules, RefuseAnotherOrderOfColumnsThatAreStoredTogether) {
  const testing::TempDir dir;
  const auto file = write_blocks(dir, 96);
  DimSplit split;
  split.size = 96;
  const MatrixOrder order = {{}, {{48, 48}, {0, 48}}};
  EXPECT_EQ(
      error_text([&] {
        matrix_rules("w", matrix_format(*file, {"f", 6, 96, 0}), order, Cut::kColumns, &split, -1);
      }),
      "ConfigError: parameter 'w.weight' (Q8_0): columns 48 to 96 stand in another order, but "
      "32 are stored together; use a format with smaller blocks");
}

TEST(MatrixRules, RefuseToReorderRowsThatAreStoredTogether) {
  const PlanFile file({{"w.qweight", Dtype::kI32, {64, 3}},
                       {"w.qzeros", Dtype::kI32, {2, 3}},
                       {"w.scales", Dtype::kF16, {2, 24}}});
  const ShardStep step{"unpermute_rope", {int64_t{3}}, {}, {}};
  EXPECT_EQ(error_text([&] {
              matrix_rules("w", matrix_format(file.file(), {"w", 24, 64, 0}), {{step}}, Cut::kWhole,
                           nullptr, -1);
            }),
            "ConfigError: parameter 'w.qweight' (awq 4-bit g32): its rows are stored together and "
            "can't be reordered; use another format");
}

}  // namespace
}  // namespace weft::io
