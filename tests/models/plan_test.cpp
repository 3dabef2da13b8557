#include "weft/models/plan.h"

#include <gtest/gtest.h>

#include "tests/core/error_text.h"
#include "tests/models/model_files.h"
#include "weft/models/config.h"
#include "weft/models/registry.h"

namespace weft::models {
namespace {

using test::model_data;
using testing::error_text;
using testing::replaced;

// The plans of all n ranks.
std::vector<LoadPlan> plans_of(const io::TensorFile& file, int64_t n) {
  const ModelConfig config = read_config(file);
  std::vector<LoadPlan> plans;
  for (int64_t rank = 0; rank < n; ++rank) {
    plans.push_back(find_family(config.family).plan(config, file, n, rank));
  }
  return plans;
}

// How many ranks hold each row (Cut::kRows) or column of the weight's cut dimension.
std::vector<int> holders(const std::vector<LoadPlan>& plans, size_t index) {
  const WeightPlan& first = plans[0].weights[index];
  const bool is_by_rows = first.cut == Cut::kRows && !first.is_vector();
  std::vector<int> count(static_cast<size_t>(is_by_rows ? first.matrix.out : first.matrix.in));
  for (const LoadPlan& plan : plans) {
    const io::MatrixSlice& slice = plan.weights[index].slice;
    const std::vector<shard::Range> columns = {slice.columns};
    for (const shard::Range& range : is_by_rows ? slice.rows : columns) {
      for (int64_t i = range.start; i < range.end(); ++i) ++count.at(static_cast<size_t>(i));
    }
  }
  return count;
}

void expect_covered(const std::vector<LoadPlan>& plans, int64_t num_kv_heads) {
  const auto n = static_cast<int>(plans.size());
  for (size_t w = 0; w < plans[0].weights.size(); ++w) {
    const WeightPlan& weight = plans[0].weights[w];
    const bool is_replicated_kv = weight.split == "kv" && n > num_kv_heads;
    for (const int count : holders(plans, w)) {
      if (weight.cut == Cut::kWhole) {
        ASSERT_EQ(count, n) << weight.name;
      } else if (is_replicated_kv) {
        ASSERT_GE(count, 1) << weight.name << " over " << n;
      } else {
        ASSERT_EQ(count, 1) << weight.name << " over " << n;
      }
    }
  }
}

// Bytes that are held more than once by design: whole vectors, and kv heads beyond one rank each.
uint64_t replicated_bytes(const io::TensorFile& file, const std::vector<LoadPlan>& plans) {
  const LoadPlan whole = plans_of(file, 1)[0];
  uint64_t bytes = 0;
  for (size_t w = 0; w < whole.weights.size(); ++w) {
    const std::vector<int> count = holders(plans, w);
    uint64_t held = 0;
    for (const int ranks : count) held += static_cast<uint64_t>(ranks);
    bytes += planned_bytes(file, whole.weights[w]) * (held - count.size()) / count.size();
  }
  return bytes;
}

uint64_t bytes_of(const io::TensorFile& file, const LoadPlan& plan) {
  uint64_t bytes = 0;
  for (const WeightPlan& weight : plan.weights) bytes += planned_bytes(file, weight);
  return bytes;
}

void expect_plans(const io::TensorFile& file, int64_t max_ranks) {
  const int64_t num_kv_heads = read_config(file).num_kv_heads;
  const uint64_t whole = bytes_of(file, plans_of(file, 1)[0]);
  for (int64_t n = 1; n <= max_ranks; ++n) {
    SCOPED_TRACE(core::join(file.path(), " over ", n));
    const std::vector<LoadPlan> plans = plans_of(file, n);
    expect_covered(plans, num_kv_heads);
    uint64_t sum = 0;
    for (const LoadPlan& plan : plans) {
      check_all_used(file, plan);
      sum += bytes_of(file, plan);
    }
    EXPECT_GE(sum, whole);
    EXPECT_LE(static_cast<double>(sum), 1.02 * static_cast<double>(whole) +
                                            static_cast<double>(replicated_bytes(file, plans)));
  }
}

TEST(LoadPlan, CoversEveryWeightOnceForAnyNumberOfRanks) {
  expect_plans(*io::TensorFile::open(model_data("mlx/plain_f32")), 4);
  expect_plans(*io::TensorFile::open(test::smollm2_path()), 9);
}

TEST(LoadPlan, CutsNineHeadsIntoSixAndThree) {
  const auto plans = plans_of(*io::TensorFile::open(test::smollm2_path()), 2);
  EXPECT_EQ(plans[0].heads.heads, (shard::Range{0, 6}));
  EXPECT_EQ(plans[1].heads.heads, (shard::Range{6, 3}));
  EXPECT_EQ(plans[0].heads.kv_heads, (shard::Range{0, 2}));
  EXPECT_EQ(plans[1].heads.kv_heads, (shard::Range{2, 1}));
}

TEST(LoadPlan, HoldsTheWholeFileOnOneRank) {
  const auto file = io::TensorFile::open(model_data("mlx/plain_f32"));
  uint64_t bytes = 0;
  for (const io::TensorMeta& meta : file->tensors()) bytes += meta.num_bytes;
  EXPECT_EQ(bytes_of(*file, plans_of(*file, 1)[0]), bytes);
}

TEST(LoadPlan, SaysHowTheFileKeepsAWeight) {
  const auto affine = io::TensorFile::open(model_data("mlx/affine_b4_g64_f32"));
  const LoadPlan plan = plans_of(*affine, 1)[0];
  EXPECT_EQ(stored_as(*affine, plan.find("model.layers.0.mlp.up_proj.weight")), "affine 4-bit g64");
  EXPECT_EQ(stored_as(*affine, plan.find("model.norm.weight")), "F32");
  EXPECT_EQ(error_text([&] { plan.find("x"); }),
            "InternalError: models: no weight 'x' in the plan");
}

TEST(LoadPlan, RefusesMoreRanksThanHeads) {
  const auto smollm2 = io::TensorFile::open(test::smollm2_path());
  EXPECT_EQ(
      error_text([&] { plans_of(*smollm2, 10); }),
      "ConfigError: shard.shard_heads: 9 heads cannot be cut over 10 ranks; use 1 to 9 ranks");
  const auto plain = io::TensorFile::open(model_data("mlx/plain_f32"));
  for (int64_t n = 5; n <= 10; ++n) {
    EXPECT_EQ(error_text([&] { plans_of(*plain, n); }),
              core::join("ConfigError: shard.shard_heads: 4 heads cannot be cut over ", n,
                         " ranks; use 1 to 4 ranks"));
  }
}

TEST(LoadPlan, RefusesAFileWithTensorsThatTheModelDoesNotUse) {
  const auto file = io::TensorFile::open(model_data("mlx/plain_f32"));
  ModelConfig config = read_config(*file);
  config.num_layers = 1;
  const LoadPlan plan = find_family("llama").plan(config, *file, 1, 0);
  const std::string error =
      replaced(error_text([&] { check_all_used(*file, plan); }), file->path(), "FILE");
  EXPECT_EQ(error.find("FormatError: FILE: 9 tensors that the model does not use, e.g. "
                       "[model.layers.1.input_layernorm.weight, "),
            0U)
      << error;
}

TEST(Registry, ListsTheFamiliesItKnows) {
  EXPECT_EQ(error_text([] { find_family("x"); }),
            "ConfigError: models: unknown family 'x', expected one of [llama]");
}

}  // namespace
}  // namespace weft::models
