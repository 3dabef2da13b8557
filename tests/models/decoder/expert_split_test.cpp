// Experts dealt out whole to the ranks, against transformers.
#include "weft/models/decoder/expert_split.h"

#include <c10/core/InferenceMode.h>

#include "tests/core/error_text.h"
#include "tests/models/family_files.h"
#include "tests/ops/tensor_checks.h"
#include "weft/models/load/load.h"

namespace weft::models {
namespace {

using dist::Group;
using test::family_path;
using testing::error_text;
using testing::replaced;

LoadOptions by_experts() {
  LoadOptions options;
  options.expert_split = ExpertSplit::kExperts;
  return options;
}

// 4, 6, 6, 4, 3 and 3 experts; single, stacked, in blocks and in MLX's parts.
const std::vector<std::pair<std::string, std::string>> kModels = {
    {"mixtral", ""},         {"mixtral", "model.gguf"},       {"qwen2_moe", ""},
    {"qwen3_moe", ""},       {"qwen3_moe", "model.gguf"},     {"qwen2_moe", "model.gguf"},
    {"qwen3_moe_mixed", ""}, {"mixtral_q8_0", "model.gguf"},  {"mixtral_mlx", ""},
    {"gpt_oss", ""},         {"gpt_oss_mxfp4", "model.gguf"}, {"glm4_moe", "model.gguf"}};

TEST(ExpertSplit, GivesTheLogitsOfThePublishedImplementation) {
  test::on_ranks(
      [](const Group& group) {
        for (const auto& [name, file] : kModels) {
          const auto expected = test::read_reference(family_path(name, "ref.safetensors"));
          const LoadedModel loaded =
              load_model(*io::TensorFile::open(family_path(name, file)), group, by_experts());
          const c10::InferenceMode inference;
          const at::Tensor logits_TV =
              loaded.model->logits(loaded.model->forward(expected.ids_BT, nullptr)).squeeze(0);
          EXPECT_LE((logits_TV - expected.logits_TV).abs().max().item<double>(), 1e-4)
              << name << "/" << file;
        }
      },
      {1, 2, 3});
}

TEST(ExpertSplit, GivesEachExpertToOneRank) {
  const auto file = io::TensorFile::open(family_path("qwen2_moe"));
  const LoadPlan whole = make_plan(*file, 1);
  const std::vector<std::vector<int64_t>> owners = {
      {0, 0, 0, 0, 0, 0}, {0, 0, 0, 1, 1, 1}, {0, 0, 1, 1, 2, 2}, {0, 0, 1, 1, 2, 3}};
  for (size_t n = 1; n <= owners.size(); ++n) {
    const LoadPlan plan = make_plan(*file, static_cast<int64_t>(n), by_experts());
    for (int64_t expert = 0; expert < 6; ++expert) {
      for (const char* part : {"gate_proj", "up_proj", "down_proj"}) {
        const std::string name =
            core::join("model.layers.1.mlp.experts.", expert, ".", part, ".weight");
        const uint64_t all = whole.planned_bytes(whole.require(name), 0);
        for (size_t rank = 0; rank < n; ++rank) {
          const bool is_own =
              owners[n - 1][static_cast<size_t>(expert)] == static_cast<int64_t>(rank);
          EXPECT_EQ(plan.planned_bytes(plan.require(name), static_cast<int64_t>(rank)),
                    is_own ? all : 0)
              << name << " on " << rank << " of " << n;
        }
      }
    }
  }
}

TEST(ExpertSplit, ReadsThisRanksExpertsAlone) {
  test::on_ranks(
      [](const Group& group) {
        const auto file = io::TensorFile::open(family_path("mixtral", "model.gguf"));
        const LoadPlan plan = make_plan(*file, group.size(), by_experts());
        const io::ReadStats stats = load_model(*file, group, by_experts()).stats;
        EXPECT_EQ(stats.planned_bytes, plan.params().planned_bytes(group.rank()));
      },
      {1, 3});
}

TEST(ExpertSplit, RefusesWhatItCanNotDealOut) {
  const auto error = [](const std::string& name, int64_t n) {
    const auto file = io::TensorFile::open(family_path(name));
    return replaced(error_text([&] { make_plan(*file, n, by_experts()); }), file->path(), "FILE");
  };
  EXPECT_EQ(error("mixtral", 5),
            "ConfigError: FILE: expert 0: experts: 4 units of 1 cannot be cut over 5 ranks; use 1 "
            "to 4 ranks");
  EXPECT_EQ(error("llama", 2),
            "ConfigError: models: experts can't be dealt out to the ranks: a 'llama' without "
            "experts; leave the expert split out");
}

}  // namespace
}  // namespace weft::models
