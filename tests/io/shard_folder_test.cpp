#include "weft/io/shard_folder.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>

#include "tests/core/error_text.h"
#include "tests/io/open_error.h"
#include "tests/io/views/plan_fixture.h"
#include "weft/io/shard_info/recut.h"

namespace weft::io {
namespace {

using testing::error_text;
using testing::NamedType;
using testing::PlanFile;
using testing::TempDir;
using testing::weft_info;
using Files = std::map<std::string, std::string>;

// Plain and quantized; even and uneven; more ranks than kv heads; fused; whole.
const std::vector<NamedType> kTensors = {
    {"embed.weight", Dtype::kBF16, {101, 12}},
    {"layers.0.q.weight", Dtype::kF32, {64, 12}},
    {"layers.0.k.weight", Dtype::kF32, {16, 12}},
    {"layers.0.o.weight", Dtype::kF16, {12, 64}},
    {"layers.0.o.bias", Dtype::kF16, {12}},
    {"layers.0.qkv.weight", Dtype::kF16, {96, 4}},
    {"layers.0.gate_up.weight", Dtype::kF16, {44, 4}},
    {"layers.0.down.weight", Dtype::kU32, {6, 9 * 8}},
    {"layers.0.down.scales", Dtype::kF16, {6, 9}},
    {"layers.0.down.biases", Dtype::kF16, {6, 9}},
    {"layers.0.up.weight", Dtype::kU32, {10, 3}},
    {"layers.0.proj.weight", Dtype::kU32, {4, 8 * 3}},
    {"layers.0.proj.scales", Dtype::kF16, {4, 8}},
    {"layers.0.router.weight", Dtype::kF32, {4, 12}},
    {"norm.weight", Dtype::kF32, {12}},
    {"scale", Dtype::kF32, {}},
};
constexpr char kRules[] = R"("embed.weight":[["shard",0]],)"
                          R"("layers.*.q.weight":[["shard_heads",0,8,2,"q"]],)"
                          R"("layers.*.k.weight":[["shard_heads",0,8,2,"kv"]],)"
                          R"("layers.*.o.weight":[["shard_heads",1,8,2,"q"]],)"
                          R"("layers.*.qkv.weight":[["shard_heads",0,8,2,"qkv"]],)"
                          R"("layers.*.gate_up.weight":[["shard_segments",0,[22,22],2]],)"
                          R"("layers.*.down.weight":[["shard",1,8]],)"
                          R"("layers.*.down.scales":[["shard",1]],)"
                          R"("layers.*.down.biases":[["shard",1]],)"
                          R"("layers.*.up.weight":[["as_bits",3],["shard",0]],)"
                          R"("layers.*.proj.weight":[["as_bits",3],["shard",1,32,8,1,32]],)"
                          R"("layers.*.proj.scales":[["shard",1,32,8,32,32]],)"
                          R"("layers.*.router.weight":[["shard_whole"]])";
constexpr char kWholeModel[] = "";

void ignore(uint64_t, uint64_t) {}

// Cuts `source` into a new folder `name` and returns its path.
std::string cut(const TempDir& dir, const std::string& source, const std::string& name, int64_t n,
                const std::string& rules = kRules) {
  const std::string folder = dir.at(name);
  std::filesystem::create_directory(folder);
  const auto file = TensorFile::open(source);
  const auto known = read_cut_checkpoint(*file);
  const ShardInfo info = known ? known->info : ShardInfo::parse(weft_info(rules), "INFO");
  ShardFolderOptions options;
  options.num_ranks = n;
  write_shards(*file, info, {}, options, folder, ignore);
  return folder;
}

Files files_of(const std::string& folder) {
  Files files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream in(entry.path(), std::ios::binary);
    files[entry.path().filename().string()] = {std::istreambuf_iterator<char>(in), {}};
  }
  return files;
}

// Hundreds of small files are synced here: in memory that costs nothing.
class TempDirInMemory {
 public:
  TempDirInMemory() {
    if (std::filesystem::exists("/dev/shm")) ::setenv("TMPDIR", "/dev/shm", 1);
    dir_ = std::make_unique<TempDir>();
    ::unsetenv("TMPDIR");
  }
  const TempDir& dir() const { return *dir_; }

 private:
  std::unique_ptr<TempDir> dir_;
};

TEST(ShardFolder, CutThereAndBackGivesTheSameFiles) {
  const PlanFile source(kTensors);
  const TempDirInMemory memory;
  const TempDir& dir = memory.dir();
  std::map<int64_t, Files> direct;
  for (const int64_t n : {1, 2, 3, 4, 8}) {
    direct[n] = files_of(cut(dir, source.file().path(), "from" + std::to_string(n), n));
    EXPECT_EQ(direct[n].size(), n == 1 ? 1U : static_cast<size_t>(n) + 1);
  }
  for (const int64_t n : {1, 2, 3, 4, 8}) {
    for (const int64_t m : {1, 2, 3, 4, 8}) {
      SCOPED_TRACE(core::join(n, " to ", m, " and back"));
      const std::string there =
          cut(dir, dir.at("from" + std::to_string(n)), core::join("there", n, ".", m), m);
      EXPECT_TRUE(files_of(there) == direct[m]);
      EXPECT_TRUE(files_of(cut(dir, there, core::join("back", n, ".", m), n)) == direct[n]);
    }
  }
}

TEST(ShardFolder, OfOneRankHoldsTheSourcesTensors) {
  const PlanFile source(kTensors);
  const TempDir dir;
  const auto whole = TensorFile::open(cut(dir, source.file().path(), "whole", 1));
  ASSERT_EQ(whole->tensors().size(), kTensors.size());
  for (const NamedType& tensor : kTensors) {
    EXPECT_EQ(whole->require(tensor.name).shape, tensor.shape);
    EXPECT_EQ(testing::tensor_text(*whole, tensor.name), source.bytes(tensor.name)) << tensor.name;
  }
}

TEST(ShardFolder, PiecesAreWhatThePlanGivesEachRank) {
  const PlanFile source(kTensors);
  const TempDir dir;
  const auto cut_file = TensorFile::open(cut(dir, source.file().path(), "cut", 3));
  const ShardPlan plan = source.plan(weft_info(kRules), 3);
  for (const char* name : {"embed.weight", "layers.0.k.weight", "layers.0.qkv.weight",
                           "layers.0.gate_up.weight", "layers.0.down.scales"}) {
    for (int64_t rank = 0; rank < 3; ++rank) {
      const std::string piece = core::join(name, "_shard-", rank + 1, "-of-3");
      EXPECT_EQ(testing::tensor_text(*cut_file, piece), source.read(plan, name, rank)) << piece;
    }
  }
  EXPECT_NE(cut_file->find("norm.weight"), nullptr);
  EXPECT_NE(cut_file->find("layers.0.router.weight"), nullptr);
}

TEST(ShardFolder, PlansNoMoreBytesThanTheWholeHas) {
  const PlanFile source(kTensors);
  const TempDir dir;
  const auto file = TensorFile::open(cut(dir, source.file().path(), "cut", 4));
  const auto known = read_cut_checkpoint(*file);
  ASSERT_TRUE(known.has_value());
  EXPECT_EQ(known->num_ranks, 4);
  const ShardPlan plan = ShardPlan::make(*file, recut_info(*file, known->info, {}), 1, {});
  uint64_t whole = 0;
  for (const TensorMeta& tensor : source.file().tensors()) whole += tensor.num_bytes;
  EXPECT_EQ(plan.planned_bytes(0), whole);
}

TEST(ShardFolder, ReordersOnceThenCutsAnew) {
  const PlanFile source({{"q", Dtype::kF16, {8, 4}}, {"k", Dtype::kF16, {4, 4}}});
  const TempDir dir;
  const std::string rules =
      R"("qk":{"from":["q","k"],"steps":[["cat",0],["interleave",0,2],["shard",0]]})";
  const std::string one = cut(dir, source.file().path(), "one", 1, rules);
  const std::string three = cut(dir, source.file().path(), "three", 3, rules);
  EXPECT_TRUE(files_of(cut(dir, three, "back", 1)) == files_of(one));
  EXPECT_EQ(TensorFile::open(one)->require("qk").shape, (std::vector<int64_t>{12, 4}));
}

// Pieces of another program, with TVM's or MLC's names.
TEST(ShardFolder, TakesForeignPiecesWithRules) {
  const PlanFile tvm({{"w_shard-1-of-2", Dtype::kF16, {3, 4}},
                      {"w_shard-2-of-2", Dtype::kF16, {2, 4}},
                      {"norm", Dtype::kF16, {4}}});
  const TempDir dir;
  const auto whole =
      TensorFile::open(cut(dir, tvm.file().path(), "whole", 1, R"("w":[["shard",0]])"));
  EXPECT_EQ(testing::tensor_text(*whole, "w"),
            tvm.bytes("w_shard-1-of-2") + tvm.bytes("w_shard-2-of-2"));
  const PlanFile mlc({{"w_shard-0", Dtype::kF16, {2, 4}},
                      {"w_shard-1", Dtype::kF16, {2, 4}},
                      {"w_shard-2", Dtype::kF16, {2, 4}}});
  // Two kv heads over three ranks: the second is there twice.
  const std::string heads = R"("w":{"shape":[4,4],"steps":[["shard_heads",0,4,2,"kv"]]})";
  const auto kv = TensorFile::open(cut(dir, mlc.file().path(), "kv", 1, heads));
  EXPECT_EQ(testing::tensor_text(*kv, "w").size(), 32U);
  EXPECT_EQ(testing::tensor_text(*kv, "w").substr(0, 16), mlc.bytes("w_shard-0"));
}

TEST(ShardFolder, RefusesWhatCannotBeJoined) {
  const PlanFile pieces(
      {{"w_shard-1-of-2", Dtype::kF16, {2, 4}}, {"w_shard-2-of-2", Dtype::kF16, {3, 4}}});
  const TempDir dir;
  const auto error = [&](const std::string& rules) {
    return testing::replaced(error_text([&] { cut(dir, pieces.file().path(), "out", 1, rules); }),
                             pieces.file().path(), "FILE");
  };
  EXPECT_EQ(error(kWholeModel),
            "ConfigError: INFO: parameter 'w': 2 pieces in FILE, but no rule whose last step says "
            "along which dim they were cut; give one in shard_info");
  EXPECT_EQ(
      error(R"("w":[["shard",0]])"),
      "FormatError: INFO: parameter 'w': piece 'w_shard-1-of-2' is [2, 4], expected [3, 4] of "
      "the whole [5, 4]; say in shard_info how it was cut, and its \"shape\"");
  EXPECT_EQ(error(R"("w":[["shard",2]])"),
            "ShapeError: INFO: parameter 'w': dim 2 of pieces [2, 4]");
}

TEST(TensorFolderWriter, SpreadsTensorsOverFiles) {
  const PlanFile source(kTensors);
  const TempDir dir;
  ShardFolderOptions options;
  options.max_file_bytes = 2000;
  write_shards(source.file(), ShardInfo::parse(weft_info(kRules), "INFO"), {}, options, dir.path(),
               ignore);
  const Files files = files_of(dir.path());
  EXPECT_GT(files.size(), 4U);
  EXPECT_TRUE(files.contains("model.safetensors.index.json"));
  const auto file = TensorFile::open(dir.path());
  for (const NamedType& tensor : kTensors) {
    EXPECT_EQ(testing::tensor_text(*file, tensor.name), source.bytes(tensor.name)) << tensor.name;
  }
}

}  // namespace
}  // namespace weft::io
