#include <gtest/gtest.h>

#include <random>

#include "tests/io/views/plan_fixture.h"
#include "weft/core/error.h"

// Damaged shard_info.json may only give a weft error of one line, or a plan whose shards can be
// read.

namespace weft::io {
namespace {

using testing::PlanFile;

using Random = std::mt19937_64;

const char* kSeeds[] = {
    R"({"format":"weft.shard_info","version":1,"others":"error","params":{"l.*.qkv":{"from":["l.*.q","l.*.k","l.*.k"],"shape":[8,6],"dtype":"F16","steps":[["combine_qkv"],["interleave_qkv",4,2],["shard",0,8]]},"n":[["shard_whole"]]}})",
    R"({"format":"weft.shard_info","version":1,"params":{"l.1.q":[["unflatten",0,[4,2]],["permute",[1,0,2]],["flatten",0,1],["repeat",1,2],["shard_segments",1,[8,4]]],"l.0.k":[["narrow",0,1,3],["reshape",[9,2]],["transpose",0,1]]}})",
    R"({"l.0.q":[["weft.stack_shards",[[2,4,6],"float16"],0,2]],"n":[],"l.1.k":[["weft.stack_shards",[[2,4,3],"F16"],1,2]]})",
    R"({"l.0.q":0,"l.1.q":1,"n":-1})",
    R"({"params":[{"name":"n","shape":["x"],"preprocs":[{"func_name":"shard_n","in_shape":[6],"out_shape":[2,3],"out_dtype":"float32"}]}],"tensor_parallel_shards":2})",
    R"({"format":"weft.shard_info","version":1,"params":{"l.0.q":[["shard_heads",0,4,2,"q"]],"l.0.k":[["uncombine_qkv","q",2,1],["select",1,0]],"l.1.q":[["deinterleave",1,3],["permute_rope",4],["stack",0]]}})",
};

const PlanFile& source() {
  static const PlanFile file({{"l.0.q", Dtype::kF16, {8, 6}},
                              {"l.0.k", Dtype::kF16, {4, 6}},
                              {"l.1.q", Dtype::kF16, {8, 6}},
                              {"l.1.k", Dtype::kF16, {4, 6}},
                              {"n", Dtype::kF32, {6}}});
  return file;
}

FunctionTable functions() {
  FunctionTable table;
  table.add_alias("shard_n", "weft.stack_shards", {0, 2});
  return table;
}

// Plans, and reads every shard that isn't huge.
std::string plan_and_read(const std::string& info, const FunctionTable& table) {
  return testing::error_text([&] {
    const ShardPlan plan = source().plan(info, 2, table);
    constexpr uint64_t kMost = 1 << 20;
    for (const PlannedParam& param : plan.params()) {
      if (param.of(1).result.num_bytes() > kMost) continue;
      EXPECT_EQ(source().read(plan, param.name, 1).size(), param.of(1).result.num_bytes());
    }
  });
}

void expect_weft_error(const std::string& info, const FunctionTable& table) {
  const std::string text = plan_and_read(info, table);
  const bool is_known = text == "no error" || text.starts_with("FormatError: ") ||
                        text.starts_with("ShapeError: ") || text.starts_with("ConfigError: ");
  EXPECT_TRUE(is_known) << text << "\nof: " << info;
  EXPECT_EQ(text.find('\n'), std::string::npos) << text;
  EXPECT_LT(text.size(), 2000u) << text;
}

TEST(ShardInfoMutations, SeedsAreRight) {
  for (const char* seed : kSeeds) EXPECT_EQ(plan_and_read(seed, functions()), "no error") << seed;
}

TEST(ShardInfoMutations, OfSingleBytesGiveOnlyWeftErrors) {
  Random random(31);
  const FunctionTable table = functions();
  const std::string characters = "0123456789-.eE\"[]{}:,* \\x\n\0\xff";
  for (const std::string seed : kSeeds) {
    for (size_t at = 0; at < seed.size(); ++at) {
      std::string mutant = seed;
      mutant[at] = characters[random() % characters.size()];
      expect_weft_error(mutant, table);
    }
  }
}

TEST(ShardInfoMutations, OfNumbersAndStretchesGiveOnlyWeftErrors) {
  Random random(32);
  const FunctionTable table = functions();
  const char* numbers[] = {"-1",
                           "0",
                           "1",
                           "3",
                           "7",
                           "65536",
                           "2147483648",
                           "4611686018427387904",
                           "9223372036854775807",
                           "9223372036854775808",
                           "1e300",
                           "\"q\"",
                           "[]",
                           "[2,3]",
                           "null"};
  for (int round = 0; round < 3000; ++round) {
    std::string mutant = kSeeds[random() % std::size(kSeeds)];
    const size_t digit = mutant.find_first_of("0123456789", random() % mutant.size());
    if (digit != std::string::npos && random() % 4 != 0) {
      mutant.replace(digit, 1, numbers[random() % std::size(numbers)]);
    } else {
      mutant.erase(random() % mutant.size(), 1 + random() % 12);
    }
    expect_weft_error(mutant, table);
  }
}

TEST(ShardInfoMutations, OfWholeStepsGiveOnlyWeftErrors) {
  Random random(33);
  const FunctionTable table = functions();
  std::vector<std::string> names;
  for (const auto& [name, function] : table.view_functions()) names.push_back(name);
  const char* arguments[] = {"0",
                             "1",
                             "2",
                             "3",
                             "6",
                             "-1",
                             "[1,0]",
                             "[4,2]",
                             "[2,2,4]",
                             "\"q\"",
                             "\"kv\"",
                             "[]",
                             "9223372036854775807"};
  for (int round = 0; round < 4000; ++round) {
    std::string steps;
    for (uint64_t count = 1 + random() % 5; count > 0; --count) {
      steps += (steps.empty() ? "[\"" : ",[\"") + names[random() % names.size()] + "\"";
      for (uint64_t i = random() % 4; i > 0; --i) {
        steps += std::string(",") + arguments[random() % std::size(arguments)];
      }
      steps += "]";
    }
    expect_weft_error(testing::weft_info("\"l.0.q\": [" + steps + "]"), table);
  }
}

TEST(ShardInfoMutations, ManyRulesAndLongTextsEnd) {
  std::string many = "{";
  for (int i = 0; i < 20000; ++i) many += core::join(i == 0 ? "" : ",", "\"p", i, "\":[]");
  EXPECT_TRUE(
      plan_and_read(many + "}", functions()).starts_with("FormatError: INFO: parameter 'p0': "));
  const std::string name(1 << 20, 'x');
  EXPECT_LT(plan_and_read("{\"" + name + "\": 0}", functions()).size(), 1000u);
  EXPECT_LT(plan_and_read("{\"n\": [[\"" + name + "\", [[1], \"F16\"]]]}", functions()).size(),
            1000u);
}

}  // namespace
}  // namespace weft::io
