#include <gtest/gtest.h>

#include "tests/core/error_text.h"
#include "tests/io/views/naive_array.h"
#include "weft/io/shard_info/function_table.h"

namespace weft::io {
namespace {

using testing::error_text;
using testing::tensor;
using testing::unit_numbers;

using Ints = std::vector<int64_t>;
using Arguments = std::vector<Argument>;

View stack(const std::string& name, const Arguments& arguments, const View& input,
           const Ints& declared) {
  const FunctionTable table;
  const TensorType type{declared, Dtype::kU8};
  return table.find(name, "test").view->apply({std::span(&input, 1), arguments, 1, 0, &type});
}

TEST(StackFunctions, CutTheDimThatTheResultHasSmaller) {
  EXPECT_EQ(unit_numbers(stack("weft.stack_declared", {}, tensor({2, 4}), {2, 2, 2})),
            (Ints{0, 1, 4, 5, 2, 3, 6, 7}));
  EXPECT_EQ(unit_numbers(stack("weft.stack_declared", {}, tensor({4, 2}), {2, 2, 2})),
            (Ints{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(stack("weft.stack_declared", {}, tensor({4, 2}), {1, 4, 2}).shape(), (Ints{1, 4, 2}));
  EXPECT_EQ(unit_numbers(stack("weft.stack_declared", {2}, tensor({8}), {2, 4})),
            (Ints{0, 1, 4, 5, 2, 3, 6, 7}));
}

// Sizes that no cut would fit: a declared [1, …] does not tell which dim would be cut.
TEST(StackFunctions, LeaveOneShardWhole) {
  const Ints all = {0, 1, 2, 3, 4, 5, 6, 7, 8};
  const auto numbers = [](const char* name, const Arguments& arguments) {
    return unit_numbers(stack(name, arguments, tensor({3, 3}), {1, 3, 3}));
  };
  EXPECT_EQ(numbers("weft.stack_declared", {}), all);
  EXPECT_EQ(numbers("weft.stack_declared", {2}), all);
  EXPECT_EQ(numbers("weft.stack_gate_up", {}), all);
  EXPECT_EQ(numbers("weft.stack_qkv", {2, 4}), all);
  EXPECT_EQ(numbers("weft.stack_shards", {1, 1}), all);
}

TEST(StackFunctions, CutEachOfQKAndV) {
  // 2 query heads beside 1 kv head of 2 features.
  EXPECT_EQ(unit_numbers(stack("weft.stack_qkv", {2, 2}, tensor({12}), {2, 6})),
            (Ints{0, 1, 4, 5, 8, 9, 2, 3, 6, 7, 10, 11}));
  const View heads = stack("weft.stack_heads", {2, 2, 4}, tensor({20, 1}), {2, 5, 2, 1});
  EXPECT_EQ(heads.shape(), (Ints{2, 5, 2, 1}));
  EXPECT_EQ(unit_numbers(heads), (Ints{0, 1, 4, 5, 6,  7,  12, 13, 14, 15,  //
                                       2, 3, 8, 9, 10, 11, 16, 17, 18, 19}));
}

TEST(StackFunctions, CutGateAndUpWhereTheNameHasBoth) {
  const Ints two = {0, 2, 1, 3}, one = {0, 1, 2, 3};
  for (const char* name : {"mlp.gate_up_proj.weight", "moe.e1_e3.q_weight"}) {
    EXPECT_EQ(unit_numbers(stack("weft.stack_gate_up", {}, tensor({4}, 0, name), {2, 2})), two);
  }
  EXPECT_EQ(
      unit_numbers(stack("weft.stack_gate_up", {}, tensor({4}, 0, "mlp.up_proj.weight"), {2, 2})),
      one);
}

TEST(StackFunctions, RefuseWhatTheyCanNotCut) {
  const auto error = [](const std::string& name, const Arguments& arguments, const Ints& shape,
                        const Ints& declared) {
    return error_text([&] { stack(name, arguments, tensor(shape), declared); });
  };
  EXPECT_EQ(error("weft.stack_declared", {}, {4, 2}, {2, 2}),
            "ShapeError: the result is declared [2, 2], expected one dim more than [4, 2]");
  EXPECT_EQ(error("weft.stack_declared", {}, {4, 2}, {2, 2, 1}),
            "ShapeError: [4, 2] in 2 shards is declared [2, 2, 1], which cuts 2 dims, expected 1");
  EXPECT_EQ(error("weft.stack_declared", {3}, {4}, {2, 2}),
            "ShapeError: dim 0 of [4] in 3 equal parts; expected a divisor");
  EXPECT_EQ(error("weft.stack_qkv", {2, 2}, {8}, {2, 4}),
            "ShapeError: dim 0 of [8] is no multiple of 2 + 2 * 2 heads; check the head counts");
  EXPECT_EQ(error("weft.stack_qkv", {0, 2}, {8}, {2, 4}),
            "ConfigError: 0 heads and 2 kv heads, expected 1 to 1048576");
  EXPECT_EQ(error("weft.stack_heads", {4, 8, 10}, {280, 20}, {}),
            "ShapeError: 8 heads and 10 kv heads in 4 equal shards; shard_segments cuts unevenly");
  EXPECT_EQ(error("weft.stack_gate_up", {}, {4}, {2, 2}),
            "ConfigError: cuts one matrix or two fused ones, and 'w' doesn't say which; bind the "
            "name in a file of functions to [\"weft.stack_declared\", 1] or 2");
  const FunctionTable table;
  const View input = tensor({4});
  EXPECT_EQ(error_text([&] {
              table.find("weft.stack_declared", "t").view->apply({std::span(&input, 1), {}, 1, 0});
            }),
            "ConfigError: cuts as shard_info declares the result, which it doesn't; use "
            "weft.stack_shards");
}

TEST(MlcFunctions, AreKnownByTheirNames) {
  const auto binding = [](const std::string& name) {
    const auto found = mlc_function(name, HeadCounts{32, 8}, "here");
    if (!found) return std::string("unknown");
    std::string text = found->function;
    for (const Argument& argument : found->arguments) text += " " + to_text(argument);
    return text;
  };
  for (const char* name :
       {"_shard_o", "_shard_q_weight", "_shard_q_q_weight", "_shard_q_12", "_shard_q_12_q_scale",
        "_shard_mlp_down_q_scale", "_shard_router", "_shard_dense_h_to_4h_bias",
        "_shard_kv_b_weight_w_uk", "_shard_mlp_fc1_weight_q_weight"}) {
    EXPECT_EQ(binding(name), "weft.stack_declared") << name;
  }
  EXPECT_EQ(binding("_shard_moe_gate_up_q_weight"), "weft.stack_declared 2");
  EXPECT_EQ(binding("_shard_mlp_up_q_scale"), "weft.stack_gate_up");
  for (const char* name : {"_shard_qkv", "_shard_qkv_bias", "_shard_qkv_weight_q_scale"}) {
    EXPECT_EQ(binding(name), "weft.stack_qkv 32 8") << name;
  }
  for (const char* name : {"_shard_", "_shard_c_attn", "_shard_q_norms", "shard_o", "_shard_12"}) {
    EXPECT_EQ(binding(name), "unknown") << name;
  }
}

}  // namespace
}  // namespace weft::io
