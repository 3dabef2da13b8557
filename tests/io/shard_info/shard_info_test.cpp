#include "weft/io/shard_info/shard_info.h"

#include <gtest/gtest.h>

#include "tests/core/error_text.h"
#include "tests/core/temp_dir.h"
#include "tests/io/views/plan_fixture.h"
#include "weft/core/error.h"

namespace weft::io {
namespace {

using testing::error_text;
using testing::weft_info;

using Ints = std::vector<int64_t>;

std::string parse_error(const std::string& text) {
  return error_text([&] { ShardInfo::parse(text, "INFO"); });
}

TEST(ShardInfo, ReadsTvmsForm) {
  const ShardInfo info = ShardInfo::parse(
      R"({"x": [["f", [[2, 64], "float16"], 2, 5], ["g", [[2, 8, 8], "float8_e4m3fn"]]], "y": []})",
      "INFO");
  ASSERT_EQ(info.params.size(), 2u);
  const ParamRule& x = info.params[0];
  EXPECT_TRUE(x.is_stacked);
  ASSERT_EQ(x.steps.size(), 2u);
  EXPECT_EQ(x.steps[0].function, "f");
  EXPECT_EQ(x.steps[0].arguments, (std::vector<Argument>{int64_t{2}, int64_t{5}}));
  EXPECT_EQ(x.steps[0].output, (TensorType{{2, 64}, Dtype::kF16}));
  EXPECT_EQ(x.steps[1].output, (TensorType{{2, 8, 8}, Dtype::kF8E4M3}));
  EXPECT_FALSE(info.params[1].is_stacked);
  EXPECT_TRUE(info.replicates_others);
}

TEST(ShardInfo, ReadsTheOlderFormOfDims) {
  const ShardInfo info = ShardInfo::parse(R"({"x": 1, "y": -1})", "INFO");
  EXPECT_EQ(info.params[0].steps[0].function, "shard");
  EXPECT_EQ(info.params[0].steps[0].arguments, (std::vector<Argument>{int64_t{1}}));
  EXPECT_TRUE(info.params[1].steps.empty());
}

TEST(ShardInfo, ReadsTheOldestFormOfAList) {
  const ShardInfo info = ShardInfo::parse(
      R"([{"name": "x", "shard_dim": 1}, {"name": "y", "shard_dim": -1}])", "INFO");
  ASSERT_EQ(info.params.size(), 2u);
  EXPECT_EQ(info.params[0].name, "x");
  EXPECT_EQ(info.params[0].steps[0].arguments, (std::vector<Argument>{int64_t{1}}));
  EXPECT_TRUE(info.params[1].steps.empty());
  EXPECT_EQ(parse_error(R"([{"name": "x", "shard_dim": 1}, 3])"),
            "FormatError: INFO: [1]: expected {\"name\", \"shard_dim\"}, got number");
  EXPECT_EQ(parse_error(R"([{"name": "x", "shard_dim": 1}, {"name": "x", "shard_dim": 1}])"),
            "FormatError: INFO: parameter 'x' stands twice");
  EXPECT_EQ(parse_error(R"([{"name": "x", "shard_dim": -2}])"),
            "FormatError: INFO: parameter 'x': dim -2, expected -1 (replicate) or a dim");
}

TEST(ShardInfo, ReadsMlcsForms) {
  const std::string steps = R"([{"func_name": "_shard_q", "in_shape": [8, 4], "out_shape":
      [2, 4, 4], "out_dtype": "uint32"}])";
  const ShardInfo one = ShardInfo::parse("{\"x\": " + steps + "}", "INFO");
  EXPECT_EQ(one.params[0].steps[0].function, "_shard_q");
  EXPECT_EQ(one.params[0].steps[0].input_shape, (Ints{8, 4}));
  EXPECT_EQ(one.params[0].steps[0].output, (TensorType{{2, 4, 4}, Dtype::kU32}));
  const ShardInfo all = ShardInfo::parse(
      R"({"tensor_parallel_shards": 2, "quantization": "q4f16_1", "params": [
          {"name": "x", "shape": ["n", 4], "dtype": "uint32", "preprocs": )" +
          steps + R"(}, {"name": "y", "shape": [4], "dtype": "float16", "preprocs": []}]})",
      "INFO");
  EXPECT_EQ(all.num_ranks, 2);
  ASSERT_EQ(all.params.size(), 2u);
  EXPECT_TRUE(all.params[0].is_stacked);
  EXPECT_TRUE(all.params[1].steps.empty());
}

TEST(ShardInfo, WritesWeftsFormThatReadsBack) {
  const std::string text = weft_info(
      R"("a.*.w": {"from": ["a.*.q", "a.*.k"], "shape": [4, 2], "dtype": "BF16",
                   "steps": [["cat", 0], ["shard_segments", 0, [4, 4], 2]]},
         "b": [["uncombine_qkv", "q", 4, 2], ["shard", 0]], "c": [])");
  const ShardInfo info = ShardInfo::parse(text, "INFO");
  const std::string written = to_json(info);
  EXPECT_EQ(written,
            R"({"format":"weft.shard_info","others":"replicate","params":{"a.*.w":{"dtype":"BF16",)"
            R"("from":["a.*.q","a.*.k"],"shape":[4,2],"steps":[["cat",0],["shard_segments",0,)"
            R"([4,4],2]]},"b":[["uncombine_qkv","q",4,2],["shard",0]],"c":[]},"version":1})");
  EXPECT_EQ(to_json(ShardInfo::parse(written, "INFO")), written);
  EXPECT_EQ(to_json(ShardInfo::parse(R"({"x": 1})", "INFO")),
            R"({"format":"weft.shard_info","others":"replicate","params":{"x":[["shard",1]]},)"
            R"("version":1})");
  EXPECT_EQ(error_text([] {
              to_json(ShardInfo::parse(R"({"x": [["f", [[2], "float16"], 2]]})", "INFO"));
            }),
            "ConfigError: io.to_json: parameter 'x': made for a number of ranks; write it with "
            "weft's functions");
}

TEST(ShardInfo, ReadsAFile) {
  const testing::TempDir dir;
  EXPECT_EQ(ShardInfo::read(dir.write("shard_info.json", "{\"x\": 0}")).params.size(), 1u);
  EXPECT_EQ(ShardInfo::read(dir.at("shard_info.json")).where, dir.at("shard_info.json"));
  EXPECT_EQ(
      testing::replaced(error_text([&] { ShardInfo::read(dir.at("none")); }), dir.path(), "DIR"),
      "FormatError: DIR/none: no such file; check the path");
}

TEST(ShardInfo, KnowsTypesByBothNames) {
  EXPECT_EQ(dtype_from_text("bfloat16"), Dtype::kBF16);
  EXPECT_EQ(dtype_from_text("BF16"), Dtype::kBF16);
  EXPECT_EQ(dtype_from_text("float7"), std::nullopt);
  EXPECT_EQ(dtype_from_text("Q4_0"), std::nullopt);
}

struct BadInfo {
  const char* text;
  const char* error;
};

TEST(ShardInfoErrors, OfJson) {
  const BadInfo cases[] = {
      {"",
       "INFO: not valid JSON at byte 0: syntax error while parsing value - unexpected end of "
       "input; expected '[', '{', or a literal"},
      {"[]", "INFO: expected an object, got array"},
      {"null", "INFO: expected an object, got null"},
      {"3", "INFO: expected an object, got number"},
      {R"({"x": [], "x": []})", "INFO: duplicate JSON key 'x'; each key may stand once"},
  };
  for (const BadInfo& bad : cases) {
    EXPECT_EQ(parse_error(bad.text), std::string("FormatError: ") + bad.error) << bad.text;
  }
  EXPECT_TRUE(
      parse_error("{\"x\": NaN}").starts_with("FormatError: INFO: not valid JSON at byte "));
  EXPECT_EQ(parse_error("{\"x\": " + std::string(100, '[') + std::string(100, ']') + "}"),
            "FormatError: INFO: JSON nested deeper than 64 levels; flatten it");
}

// Steps of TVM's form for a parameter x.
TEST(ShardInfoErrors, OfTvmsSteps) {
  const BadInfo cases[] = {
      {"[[]]", "step 1: expected [function, [shape, dtype], integer…], got a list of 0"},
      {"[\"f\"]", "step 1: expected [function, [shape, dtype], integer…], got string"},
      {"[[\"f\"]]", "step 1: expected [function, [shape, dtype], integer…], got a list of 1"},
      {"[[1, [[2], \"F16\"]]]",
       "step 1: expected [function, [shape, dtype], integer…], got a list of 2"},
      {"[[\"f\", [[2]]]]", "step 1: result: expected [shape, dtype], got a list of 1"},
      {"[[\"f\", [[2], \"F16\", 3]]]", "step 1: result: expected [shape, dtype], got a list of 3"},
      {"[[\"f\", 5]]", "step 1: result: expected [shape, dtype], got number"},
      {"[[\"f\", [2, \"F16\"]]]", "step 1: result shape: expected a list of sizes, got number"},
      {"[[\"f\", [[-2], \"F16\"]]]", "step 1: result shape: size -2, expected at least 0"},
      {"[[\"f\", [[2.0], \"F16\"]]]", "step 1: result shape: expected an integer, got 2.0"},
      {"[[\"f\", [[1e3], \"F16\"]]]", "step 1: result shape: expected an integer, got 1000.0"},
      {"[[\"f\", [[\"2\"], \"F16\"]]]", "step 1: result shape: expected an integer, got string"},
      {"[[\"f\", [[true], \"F16\"]]]", "step 1: result shape: expected an integer, got boolean"},
      {"[[\"f\", [[9223372036854775808], \"F16\"]]]",
       "step 1: result shape: 9223372036854775808 is too large for a signed integer"},
      {"[[\"f\", [[4294967296, 4294967296], \"F16\"]]]",
       "step 1: result shape: [4294967296, 4294967296] is more than 2^63 elements"},
      {"[[\"f\", [[0, 9223372036854775807, 2], \"F16\"]]]",
       "step 1: result shape: [0, 9223372036854775807, 2] is more than 2^63 elements"},
      {"[[\"f\", [[2], \"float7\"]]]",
       "step 1: result type: unknown type 'float7', expected one such as 'float16' or 'F16'"},
      {"[[\"f\", [[2], 7]]]", "step 1: result type: expected a string, got 7"},
      {"[[\"f\", [[2], \"F16\"], \"a\"]]", "step 1 extra 1: expected an integer, got string"},
      {"[[\"f\", [[2], \"F16\"], 1, 2.5]]", "step 1 extra 2: expected an integer, got 2.5"},
      {"[[\"f\", [[2], \"F16\"], null]]", "step 1 extra 1: expected an integer, got null"},
      {"[[\"f\", [[2], \"F16\"], 18446744073709551616]]",
       "step 1 extra 1: expected an integer, got 1.8446744073709552e+19"},
      {"[[\"f\", [[2], \"F16\"]], []]",
       "step 2: expected [function, [shape, dtype], integer…], got a list of 0"},
      {"\"f\"", "expected a list of steps, got string"},
      {"null", "expected a list of steps, got null"},
      {"-2", "dim -2, expected -1 (replicate) or a dim"},
      {"1.5", "expected an integer, got 1.5"},
      {"[{\"func_name\": \"f\"}]", "step 1: missing key \"out_shape\""},
      {"[{\"func_name\": \"f\", \"out_shape\": [2], \"out_dtype\": \"F16\", \"in_shape\": 1}]",
       "step 1: in_shape: expected a list of sizes, got number"},
  };
  for (const BadInfo& bad : cases) {
    const std::string text = core::join("{\"x\": ", bad.text, "}");
    const std::string error = parse_error(text);
    const std::string lead = "FormatError: INFO: parameter 'x': ";
    EXPECT_EQ(error, lead + bad.error) << text;
  }
}

TEST(ShardInfoErrors, OfWeftsForm) {
  const BadInfo cases[] = {
      {R"({"format": "other"})", "format 'other', expected 'weft.shard_info'"},
      {R"({"format": "weft.shard_info"})", "missing key \"version\""},
      {R"({"format": "weft.shard_info", "version": 2})", "version 2, expected 1; update weft"},
      {R"({"format": "weft.shard_info", "version": 1})", "missing key \"params\""},
      {R"({"format": "weft.shard_info", "version": 1, "params": []})",
       "\"params\": expected an object, got array"},
      {R"({"format": "weft.shard_info", "version": 1, "params": {}, "world": 2})",
       "unknown key 'world', expected format, others, params, version"},
      {R"({"format": "weft.shard_info", "version": 1, "params": {}, "others": "x"})",
       "\"others\": 'x', expected 'replicate' or 'error'"},
  };
  for (const BadInfo& bad : cases) {
    EXPECT_EQ(parse_error(bad.text), std::string("FormatError: INFO: ") + bad.error) << bad.text;
  }
  const BadInfo rules[] = {
      {"5", "expected a list of steps or an object with \"steps\", got number"},
      {"{}", "missing key \"steps\""},
      {R"({"steps": 1})", "expected a list of steps, got number"},
      {R"({"steps": [], "form": []})", "unknown key 'form', expected dtype, from, shape, steps"},
      {R"({"steps": [], "from": []})", "\"from\": expected a list of tensors"},
      {R"({"steps": [], "from": [1]})", "\"from\": expected a string, got 1"},
      {R"({"steps": [], "shape": [-1]})", "\"shape\": size -1, expected at least 0"},
      {R"({"steps": [], "dtype": "x"})",
       "\"dtype\": unknown type 'x', expected one such as 'float16' or 'F16'"},
      {"[[]]", "step 1: expected [function, argument…], got array"},
      {"[{}]", "step 1: expected [function, argument…], got object"},
      {"[[\"shard\", 1.5]]", "step 1 argument 1: expected an integer, got 1.5"},
      {"[[\"shard\", 0, [1, null]]]", "step 1 argument 2: expected an integer, got null"},
      {"[[\"shard\", {}]]", "step 1 argument 1: expected an integer, got object"},
  };
  for (const BadInfo& bad : rules) {
    EXPECT_EQ(parse_error(weft_info(core::join("\"x\": ", bad.text))),
              std::string("FormatError: INFO: parameter 'x': ") + bad.error)
        << bad.text;
  }
  std::string many = "\"x\": [";
  for (int i = 0; i < 65; ++i) many += i == 0 ? "[\"f\"]" : ",[\"f\"]";
  EXPECT_EQ(parse_error(weft_info(many + "]")),
            "FormatError: INFO: parameter 'x': 65 steps, expected at most 64");
}

TEST(ShardInfoErrors, OfMlcsMetadata) {
  EXPECT_EQ(parse_error(R"({"params": [{"name": "x"}, {"name": "x"}]})"),
            "FormatError: INFO: parameter 'x' stands twice");
  EXPECT_EQ(parse_error(R"({"params": [{"name": "x"}, {"shape": []}]})"),
            "FormatError: INFO: params[1]: missing key \"name\"");
  EXPECT_EQ(parse_error(R"({"params": [{"name": "x"}], "tensor_parallel_shards": 0})"),
            "FormatError: INFO: tensor_parallel_shards 0, expected at least 1");
}

}  // namespace
}  // namespace weft::io
