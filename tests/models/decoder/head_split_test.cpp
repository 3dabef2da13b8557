// Query heads dealt out evenly, with the kv heads that they need on several ranks.
#include <c10/core/InferenceMode.h>

#include <filesystem>

#include "tests/core/error_text.h"
#include "tests/core/temp_dir.h"
#include "tests/models/family_files.h"
#include "tests/models/model_logits.h"
#include "tests/models/rules_of.h"
#include "tests/ops/tensor_checks.h"
#include "weft/io/shard_folder.h"
#include "weft/models/load/load.h"
#include "weft/models/registry.h"

namespace weft::models {
namespace {

using dist::Group;
using shard::HeadSplit;
using test::family_path;
using test::largest_difference;
using test::on_ranks;
using test::rules_of;
using testing::error_text;
using testing::replaced;
using testing::TempDir;

LoadOptions evenly(int64_t panel_bits = 0) {
  LoadOptions options;
  options.head_split = HeadSplit::kEven;
  options.panel_activation_bits = panel_bits;
  return options;
}

// Of a prompt without its last token, then that one alone behind a cache.
at::Tensor logits_in_two(CausalLM& model, const at::Tensor& ids_BT) {
  const c10::InferenceMode inference;
  const int64_t prompt = ids_BT.size(1) - 1;
  nn::KvCache cache = model.make_cache(1, prompt + 1);
  const at::Tensor first = model.forward(ids_BT.narrow(1, 0, prompt), &cache);
  const at::Tensor last = model.forward(ids_BT.narrow(1, prompt, 1), &cache);
  return model.logits(at::cat({first, last}, 1)).squeeze(0);
}

// 6 heads over 3 kv heads.
TEST(HeadSplit, GivesTheLogitsOfThePublishedImplementation) {
  on_ranks([](const Group& group) {
    const auto file = io::TensorFile::open(family_path("llama_bias"));
    const auto expected = test::read_reference(family_path("llama_bias", "ref.safetensors"));
    const LoadedModel loaded = load_model(*file, group, evenly());
    EXPECT_LE(largest_difference(logits_in_two(*loaded.model, expected.ids_BT), expected.logits_TV),
              1e-4);
  });
}

TEST(HeadSplit, GivesTheLogitsOfSmolLm2ByModulesAndByTheFusedPass) {
  on_ranks(
      [](const Group& group) {
        const auto expected = test::read_reference(test::model_data("smollm2_logits.safetensors"));
        const auto file = io::TensorFile::open(test::smollm2_path());
        const LoadedModel modules = load_model(*file, group, evenly());
        EXPECT_LE(
            largest_difference(logits_in_two(*modules.model, expected.ids_BT), expected.logits_TV),
            1e-3);
        const LoadedModel panels = load_model(*file, group, evenly(16));
        const LoadedModel alone = load_model(*file, Group(), evenly(16));
        EXPECT_LE(largest_difference(logits_in_two(*panels.model, expected.ids_BT),
                                     logits_in_two(*alone.model, expected.ids_BT)),
                  0.3);
      },
      {2});
}

TEST(HeadSplit, GivesEachRankAsManyQueryHeadsAndTheirKvHeads) {
  const auto file = io::TensorFile::open(test::smollm2_path());
  constexpr int64_t kHeadDim = 64;
  const LoadPlan two = make_plan(*file, 2, evenly());
  EXPECT_EQ(two.split("heads").lengths(), (std::vector<int64_t>{5 * kHeadDim, 4 * kHeadDim}));
  EXPECT_EQ(two.split("kv").lengths(), (std::vector<int64_t>{2 * kHeadDim, 2 * kHeadDim}));
  for (const int64_t n : {1, 3, 4}) {
    EXPECT_EQ(make_plan(*file, n, evenly()).split("heads").lengths(),
              make_plan(*file, n).split("heads").lengths());
  }
}

TEST(HeadSplit, IsWhatAFileOfRulesOrAPreshardedCheckpointSays) {
  const auto file = io::TensorFile::open(family_path("llama_bias"));
  const LoadPlan by_kv = make_plan(*file, 2), even = make_plan(*file, 2, evenly());
  ASSERT_NE(by_kv.params().hash(), even.params().hash());
  WeightRules rules = rules_of(*file);
  const io::ShardInfo kv_info = shard_info(*file, rules);
  set_head_split(HeadSplit::kEven, rules);
  const io::ShardInfo even_info =
      io::ShardInfo::parse(io::to_json(with_patterns(shard_info(*file, rules))), "INFO");
  LoadOptions options = evenly();
  options.shard_info = &kv_info;
  EXPECT_EQ(make_plan(*file, 2, options).params().hash(), by_kv.params().hash());
  options.head_split = HeadSplit::kKv;
  options.shard_info = &even_info;
  EXPECT_EQ(make_plan(*file, 2, options).params().hash(), even.params().hash());

  const TempDir dir;
  io::ShardFolderOptions pieces;
  pieces.num_ranks = 2;
  io::write_shards(*file, even_info, {}, pieces, dir.path(), [](uint64_t, uint64_t) {});
  std::filesystem::copy(family_path("llama_bias", "config.json"), dir.path());
  const auto cut = io::TensorFile::open(dir.path());
  on_ranks([&](const Group& group) {
    const auto expected = test::read_reference(family_path("llama_bias", "ref.safetensors"));
    const LoadedModel loaded = load_model(*cut, group);
    EXPECT_LE(largest_difference(logits_in_two(*loaded.model, expected.ids_BT), expected.logits_TV),
              1e-4);
  });
  EXPECT_EQ(make_plan(*cut, 2).split("heads").lengths(), even.split("heads").lengths());
}

}  // namespace
}  // namespace weft::models
