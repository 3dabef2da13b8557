#include "weft/io/shard_info/shard_plan.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/io/views/plan_fixture.h"
#include "weft/core/error.h"
#include "weft/io/views/pieces.h"

namespace weft::io {
namespace {

using core::join;
using testing::NaiveArray;
using testing::PlanFile;
using testing::weft_info;

using Ints = std::vector<int64_t>;

const PlanFile& attention_file() {
  static const PlanFile file({{"layers.0.q", Dtype::kF16, {16, 6}},
                              {"layers.0.k", Dtype::kF16, {8, 6}},
                              {"layers.0.v", Dtype::kF16, {8, 6}},
                              {"layers.1.q", Dtype::kF16, {16, 6}},
                              {"layers.1.k", Dtype::kF16, {8, 6}},
                              {"layers.1.v", Dtype::kF16, {8, 6}},
                              {"norm", Dtype::kF32, {6}}});
  return file;
}

const char* kFused = R"("layers.*.qkv": {"from": ["layers.*.q", "layers.*.k", "layers.*.v"],
    "shape": [16, 6], "dtype": "F16", "steps": [["combine_qkv"], ["shard_heads", 0, 8, 4, "qkv"]]})";

TEST(ShardPlan, MakesOneParameterOfSeveralTensorsInEveryLayer) {
  const PlanFile& file = attention_file();
  for (const int64_t n : {1, 2, 3, 4, 8}) {
    const ShardPlan plan = file.plan(weft_info(kFused), n);
    ASSERT_EQ(plan.params().size(), 3u);
    for (int64_t rank = 0; rank < n; ++rank) {
      const auto heads = n <= 4 ? shard::part(4, n, rank) : shard::Range{rank / 2, 1};
      const auto q =
          n <= 4 ? shard::Range{heads.start * 2, heads.length * 2} : shard::Range{rank, 1};
      for (const int64_t layer : {0, 1}) {
        const auto rows = [&](const char* part, const shard::Range& range) {
          const std::string name = join("layers.", layer, ".", part);
          return file.bytes(name, file.whole(name).narrow(0, range.start * 2, range.length * 2));
        };
        EXPECT_EQ(file.read(plan, join("layers.", layer, ".qkv"), rank),
                  rows("q", q) + rows("k", heads) + rows("v", heads));
      }
      EXPECT_EQ(file.read(plan, "norm", rank), file.bytes("norm"));
    }
  }
}

TEST(ShardPlan, TheMoreLiteralRuleWins) {
  const PlanFile& file = attention_file();
  const ShardPlan plan =
      file.plan(weft_info(R"("layers.*.q": [["shard", 0]], "layers.1.q": [["shard", 1]])"), 2);
  EXPECT_EQ(plan.find("layers.0.q")->of(0).result.shape(), (Ints{8, 6}));
  EXPECT_EQ(plan.find("layers.1.q")->of(0).result.shape(), (Ints{16, 3}));
}

TEST(ShardPlan, LeavesOutWhatNobodyNeeds) {
  const PlanFile& file = attention_file();
  ShardInfo info = ShardInfo::parse(weft_info(R"("layers.0.q": [["shard", 0]])"), "INFO");
  info.unread = {"norm", "layers.0.q", "none"};
  const ShardPlan plan = ShardPlan::make(file.file(), info, 2, {});
  EXPECT_EQ(plan.find("norm"), nullptr);
  // A rule is a need.
  EXPECT_NE(plan.find("layers.0.q"), nullptr);
  EXPECT_EQ(plan.params().size(), file.file().tensors().size() - 1);
}

TEST(ShardPlan, ReorderAndShardCompose) {
  const PlanFile file({{"w", Dtype::kF32, {24, 4}}});
  const NaiveArray whole = file.whole("w");
  const NaiveArray halves = whole.reshape({4, 3, 2, 4}).permute({0, 2, 1, 3}).reshape({24, 4});
  for (const int64_t n : {1, 2, 3, 4, 8}) {
    const ShardPlan before =
        file.plan(weft_info(R"("w": [["unpermute_rope", 4], ["shard", 0]])"), n);
    const ShardPlan after =
        file.plan(weft_info(R"("w": [["unpermute_rope", 4], ["shard", 1], ["transpose", 0, 1]])"),
                  n > 4 ? 4 : n);
    for (int64_t rank = 0; rank < n; ++rank) {
      const auto rows = shard::part(24, n, rank);
      EXPECT_EQ(file.read(before, "w", rank),
                file.bytes("w", halves.narrow(0, rows.start, rows.length)));
      if (n > 4) continue;
      const auto columns = shard::part(4, n, rank);
      EXPECT_EQ(file.read(after, "w", rank),
                file.bytes("w", halves.narrow(1, columns.start, columns.length).permute({1, 0})));
    }
  }
}

TEST(ShardPlan, OrderOfStepsMatters) {
  const PlanFile file({{"w", Dtype::kU8, {4, 4}}});
  const ShardPlan one = file.plan(weft_info(R"("w": [["transpose", 0, 1], ["shard", 0]])"), 2);
  const ShardPlan other = file.plan(weft_info(R"("w": [["shard", 0], ["transpose", 0, 1]])"), 2);
  EXPECT_NE(file.read(one, "w", 1), file.read(other, "w", 1));
}

TEST(ShardPlan, OneNumberPerRankIsAScalarShard) {
  const PlanFile file({{"s", Dtype::kF32, {3}}});
  const ShardPlan plan = file.plan(R"({"s": [["weft.stack_shards", [[3, 1], "F32"], 0, 3],
                          ["flatten", [[3], "F32"], 0, 1]]})",
                                   3);
  EXPECT_EQ(plan.find("s")->of(2).result.shape(), Ints{});
  EXPECT_EQ(file.read(plan, "s", 2), file.bytes("s").substr(8));
}

TEST(ShardPlan, MlcsFunctionsAreAliases) {
  const PlanFile file({{"w", Dtype::kU32, {8, 4}}});
  FunctionTable functions;
  functions.add_alias("_shard_gate_up", "weft.stack_shards", {0, 2, 4, 4});
  const std::string steps =
      R"([{"func_name": "_shard_gate_up", "in_shape": [8, 4], "out_shape": [2, 4, 4],
           "out_dtype": "uint32"}])";
  const ShardPlan plan = file.plan(join("{\"w\": ", steps, "}"), 2, functions);
  const NaiveArray whole = file.whole("w");
  EXPECT_EQ(file.read(plan, "w", 1),
            file.bytes("w", NaiveArray::cat({whole.narrow(0, 2, 2), whole.narrow(0, 6, 2)}, 0)));
  EXPECT_EQ(file.plan_error(join("{\"params\": [{\"name\": \"w\", \"preprocs\": ", steps,
                                 "}], \"tensor_parallel_shards\": 2}"),
                            3, functions),
            "ConfigError: INFO: made for 2 ranks, got 3; make it for that number, or in weft's "
            "form for any");
}

TEST(ShardPlan, TheSameFunctionServesDifferentShapes) {
  const PlanFile file({{"a", Dtype::kU8, {4, 2}}, {"b", Dtype::kU8, {2, 6, 3}}});
  const ShardPlan plan = file.plan(weft_info(R"("a": [["shard", 0]], "b": [["shard", 1]])"), 2);
  EXPECT_EQ(file.read(plan, "b", 1), file.bytes("b", file.whole("b").narrow(1, 3, 3)));
}

// F32 to bf16 by cutting, n shards along dim 0.
class Halve : public EagerFunction {
 public:
  TensorType output_type(const TensorType& input, std::span<const Argument> n) const override {
    core::check<core::ShapeError>(input.dtype == Dtype::kF32, "halve: ", to_text(input),
                                  ", expected F32");
    const int64_t count = std::get<int64_t>(n[0]);
    return {{count, input.shape[0] / count, input.shape[1]}, Dtype::kBF16};
  }
  void run(std::span<const std::byte> input, const TensorType&, std::span<const Argument>,
           std::span<std::byte> output) const override {
    for (size_t i = 0; i < output.size(); i += 2) {
      std::memcpy(&output[i], &input[2 * i + 2], 2);
    }
  }
};

TEST(ShardPlan, EagerFunctionsRunInMemoryBetweenViews) {
  const PlanFile file({{"w", Dtype::kF32, {4, 6}}, {"h", Dtype::kF16, {4, 6}}});
  FunctionTable functions;
  functions.add("halve", std::make_shared<Halve>());
  const std::string info = R"({"w": [["transpose", [[6, 4], "float32"], 0, 1],
                                     ["halve", [[2, 3, 4], "bfloat16"], 2]]})";
  const ShardPlan plan = file.plan(info, 2, functions);
  const NaiveArray turned = file.whole("w").permute({1, 0});
  for (const int64_t rank : {0, 1}) {
    const std::string expected = file.bytes("w", turned.narrow(0, rank * 3, 3));
    std::string halved;
    for (size_t i = 0; i < expected.size(); i += 4) halved += expected.substr(i + 2, 2);
    EXPECT_EQ(file.read(plan, "w", rank), halved);
  }
  EXPECT_EQ(plan.planned_bytes(0), 96u + 48u);
  EXPECT_EQ(plan.shard_bytes(0), 24u + 48u);
  EXPECT_EQ(plan.peak_eager_bytes(0), 96u + 48u + 24u);
  EXPECT_EQ(file.plan_error(R"({"h": [["halve", [[2, 2, 6], "bfloat16"], 2]]})", 2, functions),
            "ShapeError: INFO: parameter 'h': step 1 'halve': halve: F16 [4, 6], expected F32");
}

TEST(ShardPlan, HashTellsWhatIsReadApart) {
  const PlanFile& file = attention_file();
  const std::string info = weft_info(R"("norm": [["shard", 0]])");
  const uint64_t hash = file.plan(info, 2).hash();
  EXPECT_EQ(file.plan(info, 2).hash(), hash);
  EXPECT_NE(file.plan(info, 3).hash(), hash);
  EXPECT_NE(file.plan("{}", 2).hash(), hash);
  EXPECT_NE(file.plan(weft_info(R"("norm": [["shard", 0, 2]])"), 2).hash(), hash);
  const PlanFile shorter({{"norm", Dtype::kF32, {6}}});
  EXPECT_NE(shorter.plan(info, 2).hash(), hash);
}

TEST(ShardPlanErrors, OfTvmsForm) {
  const PlanFile file({{"x", Dtype::kF16, {64, 128}}, {"e", Dtype::kF16, {8}}});
  const std::string lead = "INFO: parameter 'x': step 1 'weft.stack_shards': ";
  const std::vector<std::pair<std::pair<const char*, int>, std::string>> cases = {
      {{R"({"x": [["weft.stack_shards", [[2, 64, 64], "float16"], 1, 2]]})", 3},
       "ConfigError: " + lead +
           "F16 [64, 128] gives F16 [2, 64, 64], expected dim 0 to be the 3 ranks; make "
           "shard_info for that number, or in weft's form for any"},
      {{R"({"x": [["weft.stack_shards", [[2, 64, 32], "float16"], 1, 2]]})", 2},
       "ShapeError: " + lead +
           "F16 [64, 128] gives F16 [2, 64, 64], expected F16 [2, 64, 32] as shard_info says; "
           "correct its shape, type or extras"},
      {{R"({"x": [["weft.stack_shards", [[2, 64, 64], "bfloat16"], 1, 2]]})", 2},
       "ShapeError: " + lead +
           "F16 [64, 128] gives F16 [2, 64, 64], expected BF16 [2, 64, 64] as shard_info says; "
           "correct its shape, type or extras"},
      {{R"({"x": [["weft.stack_shards", [[3, 64, 42], "float16"], 1, 3]]})", 3},
       "ShapeError: " + lead + "a segment of 128 in 3 equal shards; weft's form cuts unevenly"},
      {{R"({"x": [["shard", [[2, 64, 64], "float16"], 1]]})", 2},
       "ConfigError: INFO: parameter 'x': step 1 'shard': gives one rank's shard, but the last "
       "step must give all along dim 0; use weft.stack_shards, or weft's form of shard_info"},
      {{R"({"y": []})", 2},
       "FormatError: INFO: parameter 'y': FILE: missing tensor 'y'; near names: 'e', 'x'; check "
       "that it is the right model"},
      {{R"({"e": 1})", 2},
       "ShapeError: INFO: parameter 'e': step 1 'shard': io.View.shard: 'e' [8]: dim 1, expected "
       "0 to 0"},
      {{R"({"e": 0})", 9},
       "ConfigError: INFO: parameter 'e': step 1 'shard': io.View.shard: 'e' [8]: dim 0: 8 units "
       "of 1 cannot be cut over 9 ranks; use 1 to 8 ranks"},
      {{R"({"x": [{"func_name": "weft.stack_shards", "in_shape": [64, 64], "out_shape": [2, 32],
                   "out_dtype": "float16"}]})",
        2},
       "ConfigError: INFO: parameter 'x': step 1 'weft.stack_shards': arguments (none), expected "
       "weft.stack_shards dim n lengths*; x[] is a list, x: a text, x? may be left out, x* any "
       "number"},
  };
  for (const auto& [input, error] : cases) {
    EXPECT_EQ(file.plan_error(input.first, input.second), error) << input.first;
  }
  EXPECT_TRUE(file.plan_error(R"({"x": [["no.such", [[2, 64, 64], "float16"], 1]]})", 2)
                  .starts_with(
                      "ConfigError: INFO: parameter 'x': step 1 'no.such': unknown "
                      "function 'no.such'; bind it in a file of functions, or use as_bits, cat, "));
  EXPECT_EQ(file.plan_error("{}", 0), "ConfigError: io.ShardPlan: 0 ranks, expected 1 to 65536");
}

TEST(ShardPlanErrors, OfWeftsForm) {
  const PlanFile& file = attention_file();
  const auto error = [&](const std::string& params) {
    return file.plan_error(weft_info(params), 2);
  };
  EXPECT_EQ(
      error(R"("norm": [["shard", 0], ["shard", 0]])"),
      "ConfigError: INFO: parameter 'norm': 2 steps that cut for ranks, expected at most 1; a "
      "second would lose elements");
  EXPECT_EQ(error(R"("norm": [["weft.stack_shards", 0, 2]])"),
            "ConfigError: INFO: parameter 'norm': step 1 'weft.stack_shards': has a number of "
            "shards in it; use shard or shard_segments");
  EXPECT_EQ(error(R"("x.*.y": [])"),
            "FormatError: INFO: parameter 'x.*.y': 'x.*.y' fits no tensor of FILE; * is one dotted "
            "segment of digits");
  EXPECT_EQ(error(R"("a.*": {"from": ["layers.*.q", "norm"], "steps": []})"),
            "FormatError: INFO: parameter 'a.*': 'norm' has 0 *, expected 1 as in the others");
  EXPECT_EQ(error(R"("a": {"from": ["layers.0.q", "norm"], "steps": []})"),
            "ShapeError: INFO: parameter 'a': 2 tensors and no step that combines them; begin with "
            "cat, stack or combine_qkv");
  EXPECT_EQ(error(R"("a": {"from": ["layers.0.q", "norm"], "steps": [["shard", 0]]})"),
            "ShapeError: INFO: parameter 'a': step 1 'shard': takes one tensor, got 2; begin with "
            "cat, stack or combine_qkv");
  EXPECT_EQ(error(R"("a": {"from": ["layers.0.q", "norm"], "steps": [["cat", 0]]})"),
            "ShapeError: INFO: parameter 'a': step 1 'cat': io.View.cat: 'layers.0.q' [16, 6]: F16 "
            "with 'norm' of F32 as input 1; convert one of them first");
  EXPECT_EQ(
      error(R"("norm": {"shape": [7], "steps": []})"),
      "FormatError: INFO: parameter 'norm': tensor 'norm' is F32 [6], expected F32 [7]; check "
      "that it is the right model");
  EXPECT_EQ(error(R"("norm": {"dtype": "BF16", "steps": []})"),
            "FormatError: INFO: parameter 'norm': tensor 'norm' is F32 [6], expected BF16 [6]; "
            "check that it is the right model");
  EXPECT_EQ(error(R"("a.*.1.b": {"from": ["layers.*.q"], "steps": []},
                     "norm": [["narrow", 0, 4, 3]])"),
            "ShapeError: INFO: parameter 'norm': step 1 'narrow': io.View.narrow: 'norm' [6]: 3 "
            "from 4 of dim 0, expected them within 6");
  EXPECT_EQ(file.plan_error(R"({"format": "weft.shard_info", "version": 1, "others": "error",
                                "params": {"layers.*.q": [], "layers.*.k": [], "layers.*.v": []}})",
                            2),
            "FormatError: INFO: tensor 'norm' of FILE is in no rule; add one, or \"others\": "
            "\"replicate\"");
}

TEST(ShardPlanErrors, OfRulesThatFitAlike) {
  const PlanFile file({{"a.0.b.1", Dtype::kU8, {2}}});
  EXPECT_EQ(file.plan_error(weft_info(R"("a.*.b.1": [], "a.0.b.*": [])"), 1),
            "FormatError: INFO: parameter 'a.0.b.1' fits 'a.*.b.1' and 'a.0.b.*'; name it in a "
            "rule of its own");
}

TEST(ShardPlanErrors, OfFunctionsThatFail) {
  const PlanFile file({{"x", Dtype::kU8, {4}}});
  FunctionTable functions;
  ViewFunction broken;
  broken.name = "broken";
  broken.apply = [](const FunctionCall&) -> View { throw std::runtime_error("line 1\nline 2"); };
  functions.add(broken);
  EXPECT_EQ(file.plan_error(weft_info(R"("x": [["broken"]])"), 2, functions),
            "ConfigError: INFO: parameter 'x': step 1 'broken': the function failed: 'line "
            "1\\x0aline 2'");
}

// Throws where it is told to.
class Thrower : public EagerFunction {
 public:
  TensorType output_type(const TensorType& input, std::span<const Argument> n) const override {
    const int64_t kind = std::get<int64_t>(n[0]);
    if (kind == 0) throw std::out_of_range("no type");
    if (kind == 1) return {{-1}, input.dtype};
    if (kind == 2) return {{int64_t{1} << 62, 4}, input.dtype};
    return input;
  }
  void run(std::span<const std::byte>, const TensorType&, std::span<const Argument>,
           std::span<std::byte>) const override {
    throw std::runtime_error("no bytes");
  }
};

TEST(ShardPlanErrors, OfFunctionsInMemoryThatFail) {
  const PlanFile file({{"x", Dtype::kU8, {2, 4}}});
  FunctionTable functions;
  functions.add("throw", std::make_shared<Thrower>());
  const auto rule = [](int kind) {
    return weft_info(core::join(R"("x": [["throw", )", kind, R"(]])"));
  };
  const std::string lead = "INFO: parameter 'x': step 1 'throw': ";
  EXPECT_EQ(file.plan_error(rule(0), 2, functions),
            "ConfigError: " + lead + "the function failed: 'no type'");
  for (const int kind : {1, 2}) {
    const std::string error = file.plan_error(rule(kind), 2, functions);
    EXPECT_TRUE(error.starts_with("ShapeError: " + lead)) << error;
  }
  const ShardPlan plan = file.plan(rule(3), 2, functions);
  EXPECT_EQ(testing::error_text([&] { file.read(plan, "x", 1); }),
            "ConfigError: io.read_shard: step 'throw': the function failed: 'no bytes'");
}

TEST(Pieces, NamesOfBothKinds) {
  const auto text = [](const std::string& name) {
    const auto piece = parse_piece_name(name);
    return !piece ? "whole" : join(piece->base, " ", piece->index, "/", piece->count.value_or(-1));
  };
  EXPECT_EQ(text("x_shard-1-of-2"), "x 0/2");
  EXPECT_EQ(text("x_shard-1-of-1"), "x 0/1");
  EXPECT_EQ(text("x_shard-3"), "x 3/-1");
  EXPECT_EQ(text("a-of-b_shard-2-of-2"), "a-of-b 1/2");
  EXPECT_EQ(text("a_shard-1-of-2_shard-1-of-2"), "a_shard-1-of-2 0/2");
  for (const char* name : {"x", "x_shard-", "x_shard-a-of-2", "x_shard-1-of-", "x_shard--1-of-2",
                           "x-of-2", "x_shard-1-of-2-of-3", "x_shard- 1"}) {
    EXPECT_EQ(text(name), "whole") << name;
  }
  const auto error = [](const char* name) {
    return testing::error_text([&] { parse_piece_name(name); });
  };
  EXPECT_EQ(
      error("x_shard-0-of-2"),
      "FormatError: io.parse_piece_name: tensor 'x_shard-0-of-2': piece 0 of 2, expected 1 to "
      "2; rename it");
  EXPECT_EQ(
      error("x_shard-3-of-2"),
      "FormatError: io.parse_piece_name: tensor 'x_shard-3-of-2': piece 3 of 2, expected 1 to "
      "2; rename it");
  EXPECT_EQ(
      error("x_shard-9223372036854775808"),
      "FormatError: io.parse_piece_name: tensor 'x_shard-9223372036854775808': a number above "
      "2^63; rename it");
}

TEST(Pieces, ThatAreMissingOrMixedAreErrors) {
  const auto error = [](const std::vector<std::string>& names) {
    std::vector<testing::NamedType> types;
    for (const std::string& name : names) types.push_back({name, Dtype::kU8, {2}});
    const PlanFile file(types);
    return testing::replaced(testing::error_text([&] { pieces_info(file.file()); }),
                             file.file().path(), "FILE");
  };
  EXPECT_EQ(error({"x_shard-1-of-3", "x_shard-3-of-3"}),
            "FormatError: FILE: parameter 'x': 2 pieces, the last of index 2, expected 3; a piece "
            "is missing");
  EXPECT_EQ(error({"x_shard-0", "x_shard-2"}),
            "FormatError: FILE: parameter 'x': 2 pieces, the last of index 2, expected 2; a piece "
            "is missing");
  EXPECT_EQ(error({"x_shard-1-of-2", "x_shard-1-of-3"}),
            "FormatError: FILE: parameter 'x': pieces of different counts, 2 and 3; keep those of "
            "one run");
  EXPECT_EQ(error({"x_shard-1-of-2", "x_shard-01-of-2"}),
            "FormatError: FILE: parameter 'x': piece 'x_shard-1-of-2' stands twice; remove one");
  EXPECT_EQ(error({"x", "x_shard-1-of-1"}),
            "FormatError: FILE: parameter 'x' is there whole and in pieces; remove one");
}

}  // namespace
}  // namespace weft::io
