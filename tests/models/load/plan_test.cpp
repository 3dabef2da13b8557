#include "weft/models/load/plan.h"

#include <gtest/gtest.h>

#include "tests/core/error_text.h"
#include "tests/models/model_files.h"
#include "weft/models/config/config.h"
#include "weft/models/load/load.h"
#include "weft/models/registry.h"

namespace weft::models {
namespace {

using test::model_data;
using testing::error_text;
using testing::replaced;

// How many ranks hold each row (or column, or element of a vector) of the weight's cut dimension.
std::vector<int> holders(const LoadPlan& plan, const PlannedWeight& weight) {
  const WeightRule& rule = weight.rule;
  const bool is_by_rows = rule.cut == Cut::kRows && !rule.is_vector();
  std::vector<int> count(static_cast<size_t>(is_by_rows ? rule.out : rule.in));
  for (int64_t rank = 0; rank < plan.num_ranks(); ++rank) {
    const io::MatrixSlice slice = plan.slice(weight, rank);
    for (const shard::Range& range : is_by_rows ? slice.rows : slice.columns) {
      for (int64_t i = range.start; i < range.end(); ++i) ++count.at(static_cast<size_t>(i));
    }
  }
  return count;
}

void expect_covered(const LoadPlan& plan, int64_t num_kv_heads) {
  const int64_t n = plan.num_ranks();
  for (const PlannedWeight& weight : plan.weights()) {
    const std::string& name = weight.rule.name;
    const bool is_replicated_kv = weight.rule.split == "kv" && n > num_kv_heads;
    for (const int count : holders(plan, weight)) {
      if (weight.rule.cut == Cut::kWhole) {
        ASSERT_EQ(count, n) << name;
      } else if (is_replicated_kv) {
        ASSERT_GE(count, 1) << name << " over " << n;
      } else {
        ASSERT_EQ(count, 1) << name << " over " << n;
      }
    }
  }
}

// Bytes that are held more than once by design: whole vectors, and kv heads beyond one rank each.
uint64_t replicated_bytes(const LoadPlan& plan, const LoadPlan& whole) {
  uint64_t bytes = 0;
  for (const PlannedWeight& weight : plan.weights()) {
    const std::vector<int> count = holders(plan, weight);
    uint64_t held = 0;
    for (const int ranks : count) held += static_cast<uint64_t>(ranks);
    bytes += whole.planned_bytes(whole.require(weight.rule.name), 0) * (held - count.size()) /
             count.size();
  }
  return bytes;
}

void expect_plans(const io::TensorFile& file, int64_t max_ranks) {
  const int64_t num_kv_heads = read_config(file).num_kv_heads;
  const LoadPlan whole = make_plan(file, 1);
  const uint64_t whole_bytes = whole.params().planned_bytes(0);
  for (int64_t n = 1; n <= max_ranks; ++n) {
    SCOPED_TRACE(core::join(file.path(), " over ", n));
    const LoadPlan plan = make_plan(file, n);
    expect_covered(plan, num_kv_heads);
    uint64_t sum = 0;
    for (int64_t rank = 0; rank < n; ++rank) sum += plan.params().planned_bytes(rank);
    EXPECT_GE(sum, whole_bytes);
    EXPECT_LE(static_cast<double>(sum), 1.02 * static_cast<double>(whole_bytes) +
                                            static_cast<double>(replicated_bytes(plan, whole)));
  }
}

TEST(LoadPlan, CoversEveryWeightOnceForAnyNumberOfRanks) {
  expect_plans(*io::TensorFile::open(model_data("mlx/plain_f32")), 4);
  expect_plans(*io::TensorFile::open(model_data("mlx/affine_b8_g32_f32")), 4);
  expect_plans(*io::TensorFile::open(test::smollm2_path()), 9);
}

TEST(LoadPlan, CutsNineHeadsIntoSixAndThree) {
  const LoadPlan plan = make_plan(*io::TensorFile::open(test::smollm2_path()), 2);
  constexpr int64_t kHeadDim = 64;
  EXPECT_EQ(plan.split("heads").lengths(), (std::vector<int64_t>{6 * kHeadDim, 3 * kHeadDim}));
  EXPECT_EQ(plan.split("kv").lengths(), (std::vector<int64_t>{2 * kHeadDim, 1 * kHeadDim}));
}

TEST(LoadPlan, HoldsTheWholeFileOnOneRank) {
  const auto file = io::TensorFile::open(model_data("mlx/plain_f32"));
  uint64_t bytes = 0;
  for (const io::TensorMeta& meta : file->tensors()) bytes += meta.num_bytes;
  EXPECT_EQ(make_plan(*file, 1).params().planned_bytes(0), bytes);
}

TEST(LoadPlan, SaysHowTheFileKeepsAWeight) {
  const LoadPlan plan = make_plan(*io::TensorFile::open(model_data("mlx/affine_b4_g64_f32")), 1);
  EXPECT_EQ(plan.require("model.layers.0.mlp.up_proj.weight").format.text, "affine 4-bit g64");
  EXPECT_EQ(plan.require("model.norm.weight").format.text, "F32");
  EXPECT_EQ(error_text([&] { plan.require("x"); }),
            "InternalError: models: no weight 'x' in the plan");
}

TEST(LoadPlan, RefusesMoreRanksThanHeads) {
  const auto smollm2 = io::TensorFile::open(test::smollm2_path());
  EXPECT_EQ(
      error_text([&] { make_plan(*smollm2, 10); }),
      "ConfigError: shard.shard_heads: 9 heads cannot be cut over 10 ranks; use 1 to 9 ranks");
  const auto plain = io::TensorFile::open(model_data("mlx/plain_f32"));
  for (int64_t n = 5; n <= 10; ++n) {
    EXPECT_EQ(error_text([&] { make_plan(*plain, n); }),
              core::join("ConfigError: shard.shard_heads: 4 heads cannot be cut over ", n,
                         " ranks; use 1 to 4 ranks"));
  }
}

TEST(LoadPlan, RefusesAFileWithTensorsThatTheModelDoesNotUse) {
  const auto file = io::TensorFile::open(model_data("mlx/plain_f32"));
  ModelConfig config = read_config(*file);
  config.num_layers = 1;
  const WeightRules rules = find_family("llama").rules(config, *file);
  const std::string error =
      replaced(error_text([&] { LoadPlan(*file, rules, 1); }), file->path(), "FILE");
  EXPECT_EQ(error.find("FormatError: FILE: 9 tensors that the model does not use, e.g. "
                       "[model.layers.1.input_layernorm.weight, "),
            0U)
      << error;
}

TEST(Registry, ListsTheFamiliesItKnows) {
  EXPECT_EQ(
      error_text([] { find_family("x"); }),
      "ConfigError: models: unknown family 'x', expected one of [llama, mistral, mixtral, qwen2, "
      "qwen3, qwen2_moe, qwen3_moe, smollm3, granite, phi3, olmo2, gemma2, "
      "gemma3_text, gemma4_text, gpt_oss, ministral3, glm4, glm4_moe, lfm2, qwen3_next, "
      "qwen3_5_text, "
      "qwen3_5_moe_text, deepseek_v3, deepseek_v2, glm4_moe_lite]");
}

}  // namespace
}  // namespace weft::models
