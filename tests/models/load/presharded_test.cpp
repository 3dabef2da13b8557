#include "weft/models/load/presharded.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/core/error_text.h"
#include "tests/core/temp_dir.h"
#include "tests/models/model_files.h"
#include "tests/models/rules_of.h"
#include "weft/io/formats/write_safetensors.h"
#include "weft/io/shard_folder.h"
#include "weft/models/load/load.h"
#include "weft/models/registry.h"

namespace weft::models {
namespace {

using test::model_data;
using test::rules_of;
using testing::error_text;
using testing::replaced;
using testing::TempDir;

// Every linear layer of the checkpoint on n ranks, one after another.
std::vector<at::Tensor> all_shards(const io::TensorFile& file, const LoadPlan& names, int64_t n) {
  const LoadPlan plan = make_plan(file, n);
  std::vector<at::Tensor> shards;
  for (int64_t rank = 0; rank < n; ++rank) {
    const WeightReader reader(file, plan, rank);
    for (const PlannedWeight& weight : names.weights()) {
      if (weight.rule.is_vector()) {
        shards.push_back(reader.vector(weight.rule.name));
      } else {
        shards.push_back(reader.linear(weight.rule.base(), false)->dense_weight());
      }
    }
  }
  return shards;
}

void expect_same(const io::TensorFile& pieces, const io::TensorFile& original,
                 const std::string& what) {
  const LoadPlan names = make_plan(original, 1);
  for (const int64_t n : {1, 2, 3, 4}) {
    const auto got = all_shards(pieces, names, n), expected = all_shards(original, names, n);
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_TRUE(at::equal(got[i], expected[i])) << what << " on " << n << ", weight " << i;
    }
  }
}

// What `weft shard` writes.
TEST(Presharded, PiecesForAnyNumberOfRanksServeAnyOther) {
  for (const char* name : {"plain_f32", "affine_b3_g64_f32", "affine_b4_g128_f32"}) {
    const std::string source = model_data(core::join("mlx/", name));
    const auto original = io::TensorFile::open(source);
    for (const int64_t n : {2, 3, 4}) {
      const TempDir dir;
      io::ShardFolderOptions options;
      options.num_ranks = n;
      io::write_shards(*original, shard_info(*original, rules_of(*original)), {}, options,
                       dir.path(), [](uint64_t, uint64_t) {});
      std::filesystem::copy(source + "/config.json", dir.path());
      expect_same(*io::TensorFile::open(dir.path()), *original,
                  core::join(name, " in ", n, " pieces"));
    }
  }
}

// Pieces of another program, named as TVM or MLC-LLM does, without a word of how they were cut.
class ForeignPieces {
 public:
  ForeignPieces(const std::string& source, int64_t n, bool has_count) {
    const auto file = io::TensorFile::open(source);
    const LoadPlan plan = make_plan(*file, n);
    std::vector<io::TensorToWrite> list;
    for (const io::PlannedParam& param : plan.params().params()) {
      for (int64_t rank = 0; rank < static_cast<int64_t>(param.recipes.size()); ++rank) {
        const io::View& view = param.of(rank).result;
        auto& bytes = kept_.emplace_back(
            std::make_unique<std::vector<std::byte>>(static_cast<size_t>(view.num_bytes())));
        io::read_shard(*file, param.of(rank), *bytes);
        std::string piece = param.name;
        if (param.recipes.size() > 1) {
          piece +=
              has_count ? core::join("_shard-", rank + 1, "-of-", n) : core::join("_shard-", rank);
        }
        list.push_back({piece, view.dtype(), view.shape(), *bytes});
      }
    }
    io::write_safetensors(dir_.at("model.safetensors"), list, {});
    std::filesystem::copy(source + "/config.json", dir_.path());
  }
  std::shared_ptr<const io::TensorFile> open() const { return io::TensorFile::open(dir_.path()); }

 private:
  TempDir dir_;
  std::vector<std::unique_ptr<std::vector<std::byte>>> kept_;
};

TEST(Presharded, TvmsAndMlcsPiecesAreJoinedByTheModelsRules) {
  const std::string source = model_data("mlx/plain_f32");
  const auto original = io::TensorFile::open(source);
  for (const bool has_count : {true, false}) {
    for (const int64_t n : {2, 3, 4}) {
      const ForeignPieces pieces(source, n, has_count);
      expect_same(*pieces.open(), *original, core::join(n, " foreign pieces"));
    }
  }
}

TEST(Presharded, PiecesThatTheRulesDontGiveAreRefused) {
  const TempDir dir;
  const std::string source = model_data("mlx/plain_f32");
  const auto original = io::TensorFile::open(source);
  const std::vector<std::byte> bytes(256 * 128 * 4);
  std::vector<io::TensorToWrite> list;
  for (const char* piece : {"_shard-1-of-2", "_shard-2-of-2"}) {
    list.push_back({core::join("lm_head.weight", piece),
                    io::Dtype::kF32,
                    {256, 64},
                    std::span(bytes).first(256 * 64 * 4)});
  }
  io::write_safetensors(dir.at("model.safetensors"), list, {});
  std::filesystem::copy(source + "/config.json", dir.path());
  const auto file = io::TensorFile::open(dir.path());
  EXPECT_EQ(replaced(error_text([&] { make_plan(*file, 2); }), dir.path(), "DIR"),
            "FormatError: DIR: parameter 'lm_head.weight': piece 'lm_head.weight_shard-1-of-2' is "
            "[256, 64], expected [128, 128] of the whole [256, 128]; say in shard_info how it was "
            "cut, and its "
            "\"shape\"");
  WeightRules rules = rules_of(*original);
  EXPECT_FALSE(presharded_info(*original, rules, {}).has_value());
}

}  // namespace
}  // namespace weft::models
