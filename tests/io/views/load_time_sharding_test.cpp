#include <gtest/gtest.h>

#include <thread>

#include "tests/io/views/plan_fixture.h"
#include "weft/core/error.h"
#include "weft/io/views/pieces.h"

// What TVM's tests of its loader show (tests/python/disco/test_loader.py), at more numbers of ranks
// and also in weft's form. Every shard is compared byte for byte with naive slicing.

namespace weft::io {
namespace {

using core::join;
using testing::NaiveArray;
using testing::NamedType;
using testing::PlanFile;
using testing::weft_info;

using Ints = std::vector<int64_t>;

constexpr int64_t kRanks[] = {1, 2, 3, 4, 8};

View reshaped_shards(const FunctionCall& call, int64_t dim) {
  const View& input = call.input();
  const int64_t n = call.integer(0);
  if (input.size(dim) % n != 0) throw std::invalid_argument("uneven");
  const View cut = input.unflatten(dim, Ints{n, input.size(dim) / n});
  return dim == 0 ? cut : cut.permute(Ints{1, 0, 2});
}

// (n, q heads, kv heads): each of q, k, v to [n, heads / n, head dim, width], side by side.
View shard_qkv_0(const FunctionCall& call) {
  const int64_t n = call.integer(0);
  const int64_t q = call.integer(1);
  const int64_t kv = call.integer(2);
  const int64_t head_dim = call.input().size(0) / (q + 2 * kv);
  std::vector<View> parts;
  for (const int64_t index : {0, 1, 2}) {
    const int64_t heads = index == 0 ? q : kv;
    parts.push_back(call.input()
                        .segment(0, Ints{q * head_dim, kv * head_dim, kv * head_dim}, index)
                        .unflatten(0, Ints{n, heads / n, head_dim}));
  }
  return View::cat(parts, 1);
}

View shard_qkv_1(const FunctionCall& call) { return call.input().flatten(1, 2); }

// The functions that TVM's tests register.
FunctionTable disco_functions() {
  FunctionTable table;
  const auto add = [&](const char* name, const char* signature, auto apply) {
    ViewFunction function;
    function.name = join("tests.disco.", name);
    function.kind = FunctionKind::kStack;
    function.signature = signature;
    function.apply = apply;
    table.add(function);
  };
  add("shard_dim_0", "n", [](const FunctionCall& call) { return reshaped_shards(call, 0); });
  add("shard_dim_1", "n", [](const FunctionCall& call) { return reshaped_shards(call, 1); });
  add("shard_qkv_0", "n q_heads kv_heads", shard_qkv_0);
  add("shard_qkv_1", "", shard_qkv_1);
  return table;
}

// Rank's share of `dim`.
NaiveArray share(const NaiveArray& whole, size_t dim, int64_t n, int64_t rank) {
  const shard::Range range = shard::part(whole.shape[dim], n, rank);
  return whole.narrow(dim, range.start, range.length);
}

std::vector<NamedType> two_params(const std::string& prefix, const Ints& first,
                                  const Ints& second) {
  return {{prefix + "0", Dtype::kF16, first}, {prefix + "1", Dtype::kF32, second}};
}

// TVM's form: cut for n ranks.
std::string tvm_info(const std::string& prefix, const Ints& first, const Ints& second, int64_t n) {
  return join("{\"", prefix, "0\": [[\"tests.disco.shard_dim_1\", [[", n, ",", first[0], ",",
              first[1] / n, "], \"float16\"], ", n, "]], \"", prefix,
              "1\": [[\"tests.disco.shard_dim_0\", [[", n, ",", second[0] / n, ",", second[1],
              "], \"float32\"], ", n, "]]}");
}

std::string uneven_info(const std::string& prefix) {
  return weft_info(
      join("\"", prefix, "0\": [[\"shard\", 1]], \"", prefix, "1\": [[\"shard\", 0]]"));
}

void expect_shards(const PlanFile& file, const ShardPlan& plan, const std::string& prefix) {
  const std::string first = prefix + "0";
  const std::string second = prefix + "1";
  const int64_t n = plan.num_ranks();
  for (int64_t rank = 0; rank < n; ++rank) {
    const NaiveArray columns = share(file.whole(first), 1, n, rank);
    EXPECT_EQ(plan.find(first)->of(rank).result.shape(), columns.shape);
    EXPECT_EQ(file.read(plan, first, rank), file.bytes(first, columns));
    const NaiveArray rows = share(file.whole(second), 0, n, rank);
    EXPECT_EQ(plan.find(second)->of(rank).result.shape(), rows.shape);
    EXPECT_EQ(file.read(plan, second, rank), file.bytes(second, rows));
  }
}

TEST(LoadTimeSharding, ShardsInTvmsForm) {
  const PlanFile file(two_params("x_", {48, 96}, {24, 128}));
  for (const int64_t n : kRanks) {
    expect_shards(file, file.plan(tvm_info("x_", {48, 96}, {24, 128}, n), n, disco_functions()),
                  "x_");
  }
}

TEST(LoadTimeSharding, ShardsOfTvmsSizesUnevenlyWithoutN) {
  const PlanFile file(two_params("x_", {64, 128}, {32, 128}));
  for (const int64_t n : kRanks) expect_shards(file, file.plan(uneven_info("x_"), n), "x_");
  const std::string dims = R"({"x_0": 1, "x_1": 0})";
  for (const int64_t n : kRanks) expect_shards(file, file.plan(dims, n), "x_");
}

TEST(LoadTimeSharding, PreshardedPiecesGoToTheirRanks) {
  const PlanFile whole(two_params("x_", {64, 128}, {32, 128}));
  for (const int64_t n : kRanks) {
    std::vector<NamedType> types;
    std::map<std::string, std::string> bytes;
    for (int64_t rank = 0; rank < n; ++rank) {
      for (const size_t index : {0, 1}) {
        const std::string source = join("x_", index);
        const NaiveArray piece = share(whole.whole(source), 1 - index, n, rank);
        const std::string name = join(source, "_shard-", rank + 1, "-of-", n);
        types.push_back({name, index == 0 ? Dtype::kF16 : Dtype::kF32, piece.shape});
        bytes[name] = whole.bytes(source, piece);
      }
    }
    const PlanFile pieces(types, bytes);
    const ShardPlan plan =
        ShardPlan::make(pieces.file(), pieces_info(pieces.file()), n, FunctionTable());
    for (int64_t rank = 0; rank < n; ++rank) {
      for (const size_t index : {0, 1}) {
        const std::string source = join("x_", index);
        EXPECT_EQ(pieces.read(plan, source, rank),
                  whole.bytes(source, share(whole.whole(source), 1 - index, n, rank)));
      }
    }
    // Cut anew for other numbers of ranks, without a whole in between.
    for (const int64_t m : kRanks) {
      const ShardPlan again = ShardPlan::make(
          pieces.file(), pieces_info(pieces.file(), {{"x_0", 1}, {"x_1", 0}}), m, FunctionTable());
      for (int64_t rank = 0; rank < m; ++rank) {
        for (const size_t index : {0, 1}) {
          const std::string source = join("x_", index);
          EXPECT_EQ(pieces.read(again, source, rank),
                    whole.bytes(source, share(whole.whole(source), 1 - index, m, rank)));
        }
      }
    }
  }
}

TEST(LoadTimeSharding, ShardsAreReadFromSeveralThreadsInAnyOrder) {
  const PlanFile file(two_params("x_", {48, 96}, {24, 128}));
  const ShardPlan plan = file.plan(tvm_info("x_", {48, 96}, {24, 128}, 2), 2, disco_functions());
  std::vector<std::string> read(4);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < read.size(); ++i) {
    threads.emplace_back(
        [&, i] { read[i] = file.read(plan, i < 2 ? "x_1" : "x_0", static_cast<int64_t>(i % 2)); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const int64_t rank : {0, 1}) {
    const auto at = static_cast<size_t>(rank);
    EXPECT_EQ(read[at], file.bytes("x_1", share(file.whole("x_1"), 0, 2, rank)));
    EXPECT_EQ(read[2 + at], file.bytes("x_0", share(file.whole("x_0"), 1, 2, rank)));
  }
}

TEST(LoadTimeSharding, AllParametersAreThereWhateverTheFilesOrder) {
  const std::vector<NamedType> types = {{"param_10", Dtype::kF16, {8, 4}},
                                        {"param_2", Dtype::kF32, {8, 4}},
                                        {"param_0", Dtype::kU8, {8, 4}},
                                        {"param_1", Dtype::kF16, {9, 4}}};
  const PlanFile file(types);
  for (const int64_t n : kRanks) {
    const ShardPlan plan =
        file.plan(R"({"param_10": 0, "param_2": 0, "param_0": 0, "param_1": 0})", n);
    EXPECT_EQ(plan.params().size(), 4u);
    for (const NamedType& type : types) {
      for (int64_t rank = 0; rank < n; ++rank) {
        EXPECT_EQ(file.read(plan, type.name, rank),
                  file.bytes(type.name, share(file.whole(type.name), 0, n, rank)));
      }
    }
  }
}

TEST(LoadTimeSharding, AllPreshardedPiecesByMlcsNames) {
  const PlanFile file({{"param_0_shard-0", Dtype::kF16, {4, 4}},
                       {"param_0_shard-1", Dtype::kF16, {4, 4}},
                       {"param_1_shard-1", Dtype::kF32, {4, 2}},
                       {"param_1_shard-0", Dtype::kF32, {4, 2}},
                       {"norm", Dtype::kF32, {4}}});
  const ShardPlan plan = ShardPlan::make(file.file(), pieces_info(file.file()), 2, FunctionTable());
  for (const int64_t rank : {0, 1}) {
    EXPECT_EQ(file.read(plan, "param_0", rank), file.bytes(join("param_0_shard-", rank)));
    EXPECT_EQ(file.read(plan, "param_1", rank), file.bytes(join("param_1_shard-", rank)));
    EXPECT_EQ(file.read(plan, "norm", rank), file.bytes("norm"));
  }
  EXPECT_EQ(testing::replaced(testing::error_text([&] {
                                ShardPlan::make(file.file(), pieces_info(file.file()), 3,
                                                FunctionTable());
                              }),
                              file.file().path(), "FILE"),
            "ConfigError: FILE: parameter 'param_0': step 1 'shard_pieces': 2 pieces for 3 ranks; "
            "use as many ranks as pieces, or cut anew: cat, then shard");
}

TEST(LoadTimeSharding, WithoutRulesEveryRankHasAll) {
  const PlanFile file(two_params("x_", {64, 128}, {32, 128}));
  for (const int64_t n : kRanks) {
    const ShardPlan plan = file.plan("{}", n);
    for (int64_t rank = 0; rank < n; ++rank) {
      EXPECT_EQ(file.read(plan, "x_0", rank), file.bytes("x_0"));
      EXPECT_EQ(file.read(plan, "x_1", rank), file.bytes("x_1"));
    }
  }
}

// heads: q, kv. Each rank's q, k and v rows one after another.
NaiveArray qkv_share(const NaiveArray& whole, int64_t q, int64_t kv, int64_t n, int64_t rank) {
  const int64_t head_dim = whole.shape[0] / (q + 2 * kv);
  std::vector<NaiveArray> parts;
  int64_t start = 0;
  for (const int64_t heads : {q, kv, kv}) {
    const shard::Range range = shard::part(heads, n, rank);
    parts.push_back(whole.narrow(0, start + range.start * head_dim, range.length * head_dim));
    start += heads * head_dim;
  }
  return NaiveArray::cat(parts, 0);
}

TEST(LoadTimeSharding, FusedQkvInTwoStepsOfTvms) {
  // More kv heads than query heads, as TVM's test has it: nothing may assume grouped queries.
  for (const int64_t n : kRanks) {
    const int64_t q = n == 2 ? 8 : 24;
    const int64_t kv = n == 2 ? 10 : 48;
    const int64_t rows = (q + 2 * kv) * 10;
    const PlanFile file({{"w_qkv", Dtype::kF16, {rows, 20}}});
    const ShardPlan plan = file.plan(
        join("{\"w_qkv\": [[\"tests.disco.shard_qkv_0\", [[", n, ",", rows / 10 / n,
             ",10,20],\"float16\"], ", n, ",", q, ",", kv, "], [\"tests.disco.shard_qkv_1\", [[", n,
             ",", rows / n, ",20],\"float16\"]]]}"),
        n, disco_functions());
    for (int64_t rank = 0; rank < n; ++rank) {
      EXPECT_EQ(file.read(plan, "w_qkv", rank),
                file.bytes("w_qkv", qkv_share(file.whole("w_qkv"), q, kv, n, rank)));
    }
  }
}

TEST(LoadTimeSharding, FusedQkvUnevenlyInWeftsForm) {
  const PlanFile file({{"w_qkv", Dtype::kF16, {280, 20}}});
  for (const int64_t n : kRanks) {
    const ShardPlan plan =
        file.plan(weft_info(R"("w_qkv": [["shard_segments", 0, [80, 100, 100], 10]])"), n);
    for (int64_t rank = 0; rank < n; ++rank) {
      EXPECT_EQ(file.read(plan, "w_qkv", rank),
                file.bytes("w_qkv", qkv_share(file.whole("w_qkv"), 8, 10, n, rank)));
    }
  }
}

TEST(LoadTimeSharding, OneFusedFunctionEqualsReorderThenShard) {
  const PlanFile file({{"w", Dtype::kF16, {48, 6}}});
  const auto functions = disco_functions();
  const ShardPlan fused = file.plan(
      R"({"w": [["weft.stack_shards", [[2, 24, 6], "F16"], 0, 2, 24, 12, 12]]})", 2, functions);
  const ShardPlan separate =
      file.plan(weft_info(R"("w": [["shard_segments", 0, [24, 12, 12]]])"), 2);
  for (const int64_t rank : {0, 1}) {
    EXPECT_EQ(file.read(fused, "w", rank), file.read(separate, "w", rank));
  }
}

TEST(LoadTimeSharding, PlannedBytesAreTheExactShare) {
  const PlanFile file(two_params("x_", {64, 128}, {32, 128}));
  for (const int64_t n : {1, 2, 4, 8}) {
    const ShardPlan plan = file.plan(uneven_info("x_"), n);
    for (int64_t rank = 0; rank < n; ++rank) {
      EXPECT_EQ(plan.planned_bytes(rank),
                (64u * 128 * 2 + 32u * 128 * 4) / static_cast<uint64_t>(n));
      EXPECT_EQ(plan.shard_bytes(rank), plan.planned_bytes(rank));
      ReadStats stats;
      file.read(plan, "x_0", rank, &stats);
      file.read(plan, "x_1", rank, &stats);
      EXPECT_EQ(stats.planned_bytes, plan.planned_bytes(rank));
    }
  }
}

}  // namespace
}  // namespace weft::io
