// GGUF's block types: each cut for any number of ranks, and models that consist of them.
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include "tests/core/temp_dir.h"
#include "tests/io/gguf_builder.h"
#include "tests/models/family_files.h"
#include "tests/models/model_logits.h"
#include "tests/models/passes/pieces.h"
#include "tests/models/up_and_down.h"
#include "tests/ops/tensor_checks.h"
#include "tests/quant/quant_cases.h"
#include "weft/models/load/load.h"
#include "weft/nn/linear/panel_linear.h"

namespace weft::models {
namespace {

using core::Dtype;
using dist::Group;
using test::family_path;
using test::largest_difference;
using test::up_and_down;
using testing::TempDir;

// The rows of a golden matrix, some times.
constexpr int64_t kGoldenRows = 3, kTimes = 7, kMatrixRows = kGoldenRows * kTimes;
constexpr int64_t kMatrixColumns = 512;

struct BlockMatrix {
  std::string bytes;
  at::Tensor values;

  explicit BlockMatrix(const core::DtypeInfo& type) {
    quant::test::Golden golden(core::join("gguf_", type.name, ".bin"));
    const auto blocks = golden.take_bytes(
        static_cast<size_t>(kGoldenRows * kMatrixColumns / type.block_elements * type.block_bytes));
    const std::string once(reinterpret_cast<const char*>(blocks.data()), blocks.size());
    for (int64_t i = 0; i < kTimes; ++i) bytes += once;
    values = golden.take({kGoldenRows, kMatrixColumns}, at::kFloat).repeat({kTimes, 1});
  }
};

std::string block_file(const core::DtypeInfo& type, const BlockMatrix& matrix) {
  testing::GgufBuilder builder;
  for (const char* name : {"up.weight", "down.weight"}) {
    builder.tensors.push_back(
        {name, {kMatrixColumns, kMatrixRows}, static_cast<uint32_t>(type.gguf), matrix.bytes});
  }
  return builder.build();
}

TEST(GgufTypes, AreCutForAnyNumberOfRanks) {
  for (int i = 0; i <= static_cast<int>(Dtype::kMXFP4); ++i) {
    const core::DtypeInfo& type = core::info(static_cast<Dtype>(i));
    if (!type.is_block()) continue;
    const TempDir dir;
    const BlockMatrix matrix(type);
    const auto file = io::TensorFile::open(dir.write("m.gguf", block_file(type, matrix)));
    for (const int64_t n : {1, 2, 3, 4}) {
      const LoadPlan plan(*file, up_and_down(kMatrixRows, kMatrixColumns, 8), n);
      EXPECT_EQ(plan.require("up.weight").format.text, type.name);
      for (int64_t rank = 0; rank < n; ++rank) {
        const shard::Range rows = plan.split("rows").of(rank)[0];
        const shard::Range columns = plan.split("columns").of(rank)[0];
        for (const int64_t panel_bits : {0, 16}) {
          const WeightReader reader(*file, plan, rank, {}, at::kFloat, {panel_bits});
          const std::string what =
              core::join(type.name, ", rank ", rank, " of ", n, ", panels ", panel_bits);
          const auto up = reader.linear("up", false), down = reader.linear("down", false);
          EXPECT_EQ(dynamic_cast<nn::PanelLinearImpl*>(up.get()) != nullptr, panel_bits != 0);
          EXPECT_TRUE(at::equal(up->dense_weight().to(at::kFloat),
                                matrix.values.narrow(0, rows.start, rows.length)))
              << what;
          EXPECT_TRUE(at::equal(down->dense_weight().to(at::kFloat),
                                matrix.values.narrow(1, columns.start, columns.length)))
              << what;
        }
      }
    }
  }
}

// Weights are in panels, in the types' own values: activations of 16 bits and keys and values in
// float16 are all that is rounded.
TEST(GgufTypes, GiveTheLogitsOfThePublishedImplementationInTheFusedPass) {
  test::on_ranks(
      [](const Group& group) {
        const auto expected = test::read_reference(family_path("llama_grids", "ref.safetensors"));
        LoadOptions options;
        options.panel_activation_bits = 16;
        const auto file = io::TensorFile::open(family_path("llama_grids", "model.gguf"));
        const LoadedModel loaded = load_model(*file, group, options);
        const c10::InferenceMode inference;
        EXPECT_EQ(loaded.model->make_cache(1, 1).dtype(), at::kHalf);
        EXPECT_LE(
            largest_difference(
                test::logits_in_pieces(*loaded.model, expected.ids_BT, {13, 5, 1, 1}).squeeze(0),
                expected.logits_TV),
            0.02);
      },
      {1, 2, 3});
}

}  // namespace
}  // namespace weft::models
